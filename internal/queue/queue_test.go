package queue_test

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// The requests of each step of an acquisition, and the round trips that it takes.
func TestRequestsOfEachStep(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
		sent := func(p *holdtest.Process, what string, want map[string]int, do func()) {
			t.Helper()
			p.Plan(nil)
			do()
			synctest.Wait()
			if got := p.Counts(); !maps.Equal(got, want) {
				t.Errorf("%s sent %v, want %v", what, got, want)
			}
		}
		var h *hold.Hold
		sent(a, "a free lock", map[string]int{"enqueue": 1}, func() { h = holdtest.MustAcquire(t, a.Queue("x")) })
		var waiter <-chan holdtest.Result
		sent(b, "a waiter, queueing", map[string]int{"enqueue": 1, "watch": 1, "read": 1}, func() {
			waiter = holdtest.AcquireLater(kit.Within(t, time.Minute), b.Queue("x"))
			kit.Queued(t, srv, holdtest.EntriesX, 2)
		})
		sent(b, "a hand-over, at its receiver", map[string]int{"event": 1, "read": 1}, func() {
			sent(a, "a release", map[string]int{"remove": 1}, func() { holdtest.MustRelease(t, h) })
			h = holdtest.Granted(t, srv, waiter).H
		})
		sent(b, "a hand-off between goroutines", map[string]int{"hand-off": 1}, func() {
			next := holdtest.AcquireLater(kit.Within(t, time.Minute), b.Queue("x"))
			synctest.Wait()
			holdtest.MustRelease(t, h)
			h = holdtest.Granted(t, srv, next).H
		})
		waiter = holdtest.AcquireLater(kit.Within(t, time.Minute), a.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		sent(a, "a waiter behind a revoked entry", map[string]int{"event": 1, "read": 1, "clear": 1}, func() {
			srv.Revoke(h.Lease())
			holdtest.Granted(t, srv, waiter)
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
					a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
					a.Plan(c.plan)
					h := holdtest.MustAcquire(t, a.Queue("x"))
					waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), b.Queue("x"))
					kit.Queued(t, srv, holdtest.EntriesX, 2)
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
							if r.Err != nil {
								t.Fatal(r.Err)
							}
							if h.Check() == nil || told == 0 {
								t.Errorf("both hold, %v after the revocation", time.Since(revoked))
							}
							t.Logf("told after %v, the waiter granted after %v", told, r.At.Sub(revoked))
							return
						default:
						}
					}
				})
			})
		}
	}
}

// The quorum is lost right after the waiter has judged: no poll of the holder is answered then, however long the delay.
func TestWaiterDoesNotHoldByADelayInWhichTheQuorumWasLost(t *testing.T) {
	for name, lasts := range map[string]time.Duration{
		"for longer than the delay": 3 * kit.LockDelay / 2, "for seconds": 4 * kit.LockDelay,
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
				a.Plan(func(kind string, _ int) etcdfake.Fate { // its watches are silent
					return etcdfake.Fate{LoseRequest: kind == "session watch", Silent: true, Reply: ifEvent(kind, time.Hour)}
				})
				h := holdtest.MustAcquire(t, a.Queue("x"))
				waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), b.Queue("x"))
				kit.Queued(t, srv, holdtest.EntriesX, 2)
				srv.Revoke(h.Lease())
				time.Sleep(10 * kit.OneWay)
				srv.LoseLeader()
				time.AfterFunc(lasts, func() { srv.ChangeLeader(0) })
				lost := time.Now()
				for h.Check() == nil {
					select {
					case r := <-waiter:
						t.Fatalf("both hold, %v after the quorum was lost; %v", r.At.Sub(lost), r.Err)
					case <-time.After(time.Millisecond):
					}
				}
				told := time.Since(lost)
				r := <-waiter
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				t.Logf("told after %v, the waiter granted after %v", told, r.At.Sub(lost))
			})
		})
	}
}

// Each reply to the waiter takes longer than it may at the end of the lock delay.
func TestSlowNetworkMakesAWaiterDelayTwiceAtMost(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		peer := kit.Join(t, srv, holdtest.EntriesX)
		p := holdtest.Start(t, srv)
		const oneWay = kit.LockDelay / 5
		p.Link.Delay(oneWay)
		waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		time.Sleep(time.Second) // the watch stands
		peer.Revoke()
		revoked := time.Now()
		r := holdtest.Granted(t, srv, waiter)
		if took, want := r.At.Sub(revoked), 2*kit.LockDelay+7*oneWay; took != want { // the event, and three requests
			t.Errorf("held after %v, want %v", took, want)
		}
	})
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
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		next := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
		synctest.Wait()
		srv.Revoke(h.Lease())
		_ = h.Release(kit.Within(t, time.Minute))
		r := holdtest.Granted(t, srv, next)
		if r.H.Lease() == h.Lease() || r.H.Check() != nil {
			t.Errorf("lease %x, Check %v", r.H.Lease(), r.H.Check())
		}
	})
}

func TestSuspendedSessionHoldsNothingNew(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		ahead := kit.Join(t, srv, holdtest.EntriesX)
		waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 2)
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
			t.Errorf("granted while the session is %v: %v", p.Sess.State(), r.Err)
		default:
		}
		p.Plan(nil)
		if r := holdtest.Granted(t, srv, waiter); r.H.Check() != nil || p.Sess.State() != holdfast.Connected {
			t.Errorf("Check %v, the session is %v", r.H.Check(), p.Sess.State())
		}
	})
}

func TestQueueIsNamedInErrorsByItsKind(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		for want, q := range map[string]*queue.Queue{
			`lock "x"`: p.Queue("x"), `semaphore "x"`: p.Permits(1, 1),
			`election "x"`: queue.New(p.Host, holdfast.KindElection, "x"),
		} {
			if got := q.String(); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		h := holdtest.MustAcquire(t, p.Permits(1, 1))
		if v, ok := layout.DecodeValue(srv.Keys(h.Key())[0].Value); !ok || v.Mode != "permit" {
			t.Errorf("the entry of a semaphore says %+v", v)
		}
	})
}

// Each read of an attempt that waits is of a few entries at most, however many stand.
func TestReadsOfAWaiterAreBounded(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		peers := []*kit.Peer{kit.Join(t, srv, holdtest.EntriesX), kit.Join(t, srv, holdtest.EntriesX),
			kit.Join(t, srv, holdtest.EntriesX)}
		ranges := 0 // written by the link only, which calls under a mutex of its own
		p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			if txn, ok := c.Request.(*pb.TxnRequest); ok {
				for _, op := range slices.Concat(txn.Success, txn.Failure) {
					if r := op.GetRequestRange(); r.GetRangeEnd() != nil {
						if ranges++; r.Limit == 0 {
							t.Errorf("a read of any number of entries: %v", r)
						}
					}
				}
			}
			return etcdfake.Fate{}
		})
		done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x").Readers())
		kit.Queued(t, srv, holdtest.EntriesX, 4)
		for _, peer := range peers {
			peer.Release()
			time.Sleep(kit.Prompt)
		}
		r := <-done
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		holdtest.MustRelease(t, r.H)
		if ranges < 3 {
			t.Errorf("%d reads of a range: this tests nothing", ranges)
		}
	})
}
