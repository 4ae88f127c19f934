package queue_test

import (
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// The entry ahead is deleted after the answer that names it and before the watch of it is
// created. No event will tell that. The read after the creation finds it; without that read
// the waiter would be woken by the recheck, 30 s later.
func TestReleaseBeforeTheWatchExistsWakesTheWaiterAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		slow  func(etcdfake.Call) bool
		fate  etcdfake.Fate
		leave time.Duration // after the waiter's call
		held  time.Duration // by the waiter, after its call
	}{
		"while the request for the watch travels": {
			slow:  func(c etcdfake.Call) bool { return c.Method == "Watch" && c.Request != nil },
			fate:  etcdfake.Fate{Request: 500 * time.Millisecond},
			leave: 250 * time.Millisecond,
			// The put, the watch, and the read that finds the entry ahead gone and how.
			held: 500*time.Millisecond + 6*kit.OneWay,
		},
		"while the answer to its put travels": {
			slow: func(c etcdfake.Call) bool {
				txn, ok := c.Request.(*pb.TxnRequest)
				return ok && len(txn.Compare) == 3 // a put: session key, own entry, own claim
			},
			fate:  etcdfake.Fate{Reply: time.Second},
			leave: 500 * time.Millisecond,
			held:  time.Second + 6*kit.OneWay,
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
				h := holdtest.MustAcquire(t, a.Queue("x"))
				b.Link.Plan(func(call etcdfake.Call) etcdfake.Fate {
					if c.slow(call) {
						return c.fate
					}
					return etcdfake.Fate{}
				})
				called := time.Now()
				waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), b.Queue("x"))
				time.Sleep(c.leave)
				if err := h.Release(kit.Within(t, time.Minute)); err != nil {
					t.Fatal(err)
				}
				r := <-waiter
				if r.Err != nil {
					t.Fatalf("after %v: %v", time.Since(called), r.Err)
				}
				if took := time.Since(called); took != c.held {
					t.Errorf("held %v after the call, want %v", took, c.held)
				}
			})
		})
	}
}

// Scenarios 34 and 35. A waiter's watch fails, and the entry ahead is deleted meanwhile. The
// waiter acquires soon after the failure is over, and without a storm of requests before.
func TestWaiterWhoseWatchFailsMissesNoRelease(t *testing.T) {
	const down = 5 * time.Second // too short to suspend the waiter
	for name, c := range map[string]struct {
		fail, mend     func(srv *etcdfake.Server, waiter *holdtest.Process)
		within         time.Duration // after mend
		watches, reads int           // at most
	}{
		"the history is compacted while it is disconnected": {
			fail: func(_ *etcdfake.Server, p *holdtest.Process) { p.Link.Cut() },
			mend: func(srv *etcdfake.Server, p *holdtest.Process) {
				for range 10 {
					srv.Put("other", "") // so that the history after its last event is compacted
				}
				srv.Compact()
				p.Heal()
			},
			within: 2 * time.Second, watches: 4, reads: 6,
		},
		"it is canceled again and again": {
			fail: func(srv *etcdfake.Server, _ *holdtest.Process) {
				for range down / (10 * time.Millisecond) {
					srv.CancelWatches(rpctypes.ErrNoLeader)
					time.Sleep(10 * time.Millisecond)
				}
			},
			mend:   func(*etcdfake.Server, *holdtest.Process) {},
			within: 2 * time.Second, watches: 60, reads: 60,
		},
		"there is no leader": {
			fail:    func(srv *etcdfake.Server, _ *holdtest.Process) { srv.LoseLeader() },
			mend:    func(srv *etcdfake.Server, _ *holdtest.Process) { srv.ChangeLeader(0) },
			within:  6 * time.Second, // a request in flight is given up after 4 s
			watches: 24, reads: 32,
		},
		"its events are late": {
			fail: func(_ *etcdfake.Server, p *holdtest.Process) {
				p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
					if c.Method == "Watch" && c.Request == nil {
						return etcdfake.Fate{Reply: time.Second}
					}
					return etcdfake.Fate{}
				})
			},
			mend:   func(*etcdfake.Server, *holdtest.Process) {},
			within: time.Second + 6*kit.OneWay, watches: 5, reads: 4,
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
				h := holdtest.MustAcquire(t, a.Queue("x"))
				waiter := holdtest.AcquireLater(t.Context(), b.Queue("x"))
				kit.Queued(t, srv, holdtest.EntriesX, 2)
				entry := string(kit.Standing(srv, "x")[1].Key)
				begin, before := time.Now(), b.Link.Count()
				c.fail(srv, b)
				time.Sleep(time.Until(begin.Add(down)))
				srv.Delete(h.Key())
				c.mend(srv, b)
				mended := time.Now()
				r := <-waiter
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				if took := time.Since(mended); took > c.within {
					t.Errorf("acquired %v after the failure was over", took)
				}
				if r.H.Check() != nil || !holdtest.IsFirst(srv, r.H) || r.H.Key() != entry {
					t.Errorf("Check %v, entries %v, its own was %s", r.H.Check(), kit.Standing(srv, "x"), entry)
				}
				after := b.Link.Count()
				// The session watches its own key as well, and polls.
				watches := after["Watch"] - before["Watch"]
				reads := after["Range"] + after["Txn"] - before["Range"] - before["Txn"]
				if watches > c.watches || reads > c.reads {
					t.Errorf("%d watches and %d reads in %v, want at most %d and %d", watches, reads, down, c.watches, c.reads)
				}
			})
		})
	}
}
