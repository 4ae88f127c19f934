package queue

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// The requests of each step of an acquisition, and the round trips that it takes.
func TestRequestsOfEachStep(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := start(t, srv), start(t, srv)
		sent := func(p *process, what string, want map[string]int, do func()) {
			t.Helper()
			p.Plan(nil)
			do()
			synctest.Wait()
			if got := p.Counts(); !maps.Equal(got, want) {
				t.Errorf("%s sent %v, want %v", what, got, want)
			}
		}
		var h *Hold
		sent(a, "a free lock", map[string]int{"enqueue": 1}, func() { h = mustAcquire(t, a.queue("x")) })
		var waiter <-chan result
		sent(b, "a waiter, queueing", map[string]int{"enqueue": 1, "watch": 1, "read": 1}, func() {
			waiter = acquireLater(kit.Within(t, time.Minute), b.queue("x"))
			kit.Queued(t, srv, entriesX, 2)
		})
		sent(b, "a hand-over, at its receiver", map[string]int{"event": 1, "read": 1}, func() {
			sent(a, "a release", map[string]int{"remove": 1}, func() { mustRelease(t, h) })
			h = granted(t, srv, waiter).h
		})
		sent(b, "a hand-off between goroutines", map[string]int{"hand-off": 1}, func() {
			next := acquireLater(kit.Within(t, time.Minute), b.queue("x"))
			synctest.Wait()
			mustRelease(t, h)
			h = granted(t, srv, next).h
		})
		waiter = acquireLater(kit.Within(t, time.Minute), a.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		sent(a, "a waiter behind a revoked entry", map[string]int{"event": 1, "read": 1}, func() {
			srv.Revoke(h.Lease())
			granted(t, srv, waiter)
		})
	})
}

// A waiter was there before the revocation, so it waits for the lock delay.
func TestHolderWhoseLeaseIsRevokedIsToldBeforeAWaiterHolds(t *testing.T) {
	for name, c := range map[string]struct {
		plan func(kind string, n int) etcdfake.Fate // of the holder's requests
	}{
		"all is well": {},
		"its watches are silent": {func(kind string, _ int) etcdfake.Fate {
			return etcdfake.Fate{LoseRequest: kind == "session watch", Silent: true, Reply: ifEvent(kind, time.Hour)}
		}},
		"its watches are half a second late": {func(kind string, _ int) etcdfake.Fate {
			return etcdfake.Fate{Reply: ifEvent(kind, kit.LockDelay/2)}
		}},
	} {
		for lead, after := range map[string]time.Duration{"just granted": 0, "long held": 20 * time.Second} {
			t.Run(name+", "+lead, func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					a, b := start(t, srv), start(t, srv)
					a.Plan(c.plan)
					h := mustAcquire(t, a.queue("x"))
					waiter := acquireLater(kit.Within(t, time.Minute), b.queue("x"))
					kit.Queued(t, srv, entriesX, 2)
					time.Sleep(after)
					srv.Revoke(h.Lease())
					revoked := time.Now()
					var told time.Duration
					for {
						time.Sleep(time.Millisecond)
						if told == 0 && h.Check() != nil {
							told = time.Since(revoked)
						}
						select {
						case r := <-waiter:
							if r.err != nil {
								t.Fatal(r.err)
							}
							if h.Check() == nil || told == 0 {
								t.Errorf("both hold, %v after the revocation", time.Since(revoked))
							}
							t.Logf("told after %v, the waiter granted after %v", told, r.at.Sub(revoked))
							return
						default:
						}
					}
				})
			})
		}
	}
}

func ifEvent(kind string, d time.Duration) time.Duration {
	if kind == "event" {
		return d
	}
	return 0
}

// A lease is revoked while one goroutine of its session holds and another waits in the line.
// The next one must not hold by that lease.
func TestNextInLineDoesNotHoldByARevokedLease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h := mustAcquire(t, p.queue("x"))
		next := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		synctest.Wait()
		srv.Revoke(h.Lease())
		_ = h.Release(kit.Within(t, time.Minute))
		r := granted(t, srv, next)
		if r.h.Lease() == h.Lease() || r.h.Check() != nil {
			t.Errorf("lease %x, Check %v", r.h.Lease(), r.h.Check())
		}
	})
}

func TestSuspendedSessionHoldsNothingNew(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		ahead := kit.Join(t, srv, entriesX)
		waiter := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		p.Plan(func(kind string, _ int) etcdfake.Fate {
			return etcdfake.Fate{LoseRequest: kind == "LeaseKeepAlive", Silent: true}
		})
		for p.Sess.Check() == nil {
			time.Sleep(time.Millisecond)
		}
		ahead.Release()
		time.Sleep(kit.Prompt)
		select {
		case r := <-waiter:
			t.Errorf("granted while the session is %v: %v", p.Sess.State(), r.err)
		default:
		}
		p.Plan(nil)
		if r := granted(t, srv, waiter); r.h.Check() != nil || p.Sess.State() != holdfast.Connected {
			t.Errorf("Check %v, the session is %v", r.h.Check(), p.Sess.State())
		}
	})
}

func TestQueueIsNamedInErrorsByItsKind(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		for want, q := range map[string]*Queue{
			`lock "x"`: p.queue("x"), `semaphore "x"`: p.permits(1, 1), `election "x"`: New(p.Host, "election", "x"),
		} {
			if got := q.String(); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		h := mustAcquire(t, p.permits(1, 1))
		if v, ok := layout.DecodeValue(srv.Keys(h.Key())[0].Value); !ok || v.Mode != "permit" {
			t.Errorf("the entry of a semaphore says %+v", v)
		}
	})
}

// Each read of an attempt that waits is of a few entries at most, however many stand.
func TestReadsOfAWaiterAreBounded(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		peers := []*kit.Peer{kit.Join(t, srv, entriesX), kit.Join(t, srv, entriesX), kit.Join(t, srv, entriesX)}
		ranges := 0 // written by the link only, which calls under a mutex of its own
		p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			if txn, ok := c.Request.(*pb.TxnRequest); ok {
				for _, op := range txn.Success {
					if r := op.GetRequestRange(); r.GetRangeEnd() != nil {
						if ranges++; r.Limit == 0 {
							t.Errorf("a read of any number of entries: %v", r)
						}
					}
				}
			}
			return etcdfake.Fate{}
		})
		done := acquireLater(kit.Within(t, time.Minute), p.queue("x").Readers())
		kit.Queued(t, srv, entriesX, 4)
		for _, peer := range peers {
			peer.Release()
			time.Sleep(kit.Prompt)
		}
		r := <-done
		if r.err != nil {
			t.Fatal(r.err)
		}
		mustRelease(t, r.h)
		if ranges < 3 {
			t.Errorf("%d reads of a range: this tests nothing", ranges)
		}
	})
}
