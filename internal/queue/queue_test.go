package queue_test

import (
	"context"
	"fmt"
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
	"github.com/holdfast-go/holdfast/session"
)

// The requests of each step of an acquisition, and the round trips that it takes.
func TestRequestsOfEachStep(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
		time.Sleep(time.Minute + time.Second) // by a clock near 0, a look without a time would be a new one
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
		sent(a, "a waiter behind a revoked entry", map[string]int{"event": 1, "read": 2, "clear": 1}, func() {
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

// The quorum is lost while the waiter is in its delay: no poll of the holder is answered then, however long the delay.
// Who gives up meanwhile, and who comes when there is a quorum again, changes nothing.
func TestWaiterDoesNotHoldByADelayInWhichTheQuorumWasLost(t *testing.T) {
	for name, c := range map[string]struct {
		lasts   time.Duration // in lock delays, as all here
		givesUp time.Duration // the first waiter, so long after there is a quorum again; 0: never
		tries   bool          // it has called once before, and comes again then
	}{
		"for longer than the delay": {lasts: 1.5e9}, "for seconds": {lasts: 4e9},
		"the waiter gives up when there is one again": {lasts: 4e9, givesUp: 0.02e9},
		"the waiter gives up in its second delay":     {lasts: 4e9, givesUp: 0.15e9},
		"between two calls of a session":              {lasts: 4e9, tries: true},
	} {
		for kind, at := range map[string]func(p *holdtest.Process) (holder, waiter *queue.Queue){
			"lock":   func(p *holdtest.Process) (holder, waiter *queue.Queue) { return p.Queue("x"), p.Queue("x") },
			"reader": func(p *holdtest.Process) (holder, waiter *queue.Queue) { return p.Queue("x"), p.Readers("x") },
			"permit": func(p *holdtest.Process) (holder, waiter *queue.Queue) { return p.Permits(2, 2), p.Permits(2, 1) },
		} {
			for _, delay := range []time.Duration{kit.LockDelay / 4, kit.LockDelay, 2 * kit.LockDelay} {
				t.Run(fmt.Sprintf("%s, %s, %v", name, kind, delay), func(t *testing.T) {
					etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
						in := func(parts time.Duration) time.Duration { return time.Duration(parts.Seconds() * float64(delay)) }
						change := func(o *session.Options) { o.LockDelay = delay }
						a, b, c2 := holdtest.Start(t, srv, change), holdtest.Start(t, srv, change), holdtest.Start(t, srv, change)
						far := time.Duration(0)
						a.Plan(func(kind string, _ int) etcdfake.Fate { // its watches are silent, and its requests slow
							return etcdfake.Fate{LoseRequest: kind == "session watch", Silent: true, Request: far,
								Reply: ifEvent(kind, time.Hour)}
						})
						held, _ := at(a)
						h := holdtest.MustAcquire(t, held)
						synctest.Wait()
						far = in(0.2e9)
						waits, cancel := context.WithCancel(kit.Within(t, time.Minute))
						defer cancel()
						_, first := at(b)
						_, second := at(c2)
						var waiters []<-chan holdtest.Result
						if c.tries {
							srv.Revoke(h.Lease())
							ctx, over := context.WithTimeout(waits, in(0.1e9))
							defer over()
							if _, err := holdtest.TryAcquire(ctx, first); err == nil {
								t.Fatal("it holds at once")
							}
						} else {
							waiters = append(waiters, holdtest.AcquireLater(waits, first))
							synctest.Wait()
							time.Sleep(time.Second) // the watches stand
							waiters = append(waiters, holdtest.AcquireLater(kit.Within(t, time.Minute), second))
							time.Sleep(time.Second)
							srv.Revoke(h.Lease())
							time.Sleep(10 * kit.OneWay)
						}
						srv.LoseLeader()
						lost := time.Now()
						time.AfterFunc(in(c.lasts), func() { srv.ChangeLeader(0) })
						if c.givesUp > 0 {
							time.AfterFunc(in(c.lasts+c.givesUp), cancel)
						}
						if c.tries {
							time.Sleep(in(c.lasts))
							waiters = append(waiters, holdtest.AcquireLater(waits, first))
						}
						results := make(chan holdtest.Result, len(waiters))
						for _, w := range waiters {
							go func() { results <- <-w }() // ends with the waiter
						}
						for h.Check() == nil {
							select {
							case r := <-results:
								if r.Err == nil {
									t.Fatalf("both hold, %v after the quorum was lost", r.At.Sub(lost))
								}
							case <-time.After(time.Millisecond):
							}
						}
						t.Logf("told after %v", time.Since(lost))
					})
				})
			}
		}
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
		if took, want := r.At.Sub(revoked), 2*kit.LockDelay+9*oneWay; took != want { // the event, and four requests
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
