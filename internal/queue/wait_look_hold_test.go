package queue_test

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// A look that finds the entry ahead standing reads the attempt's own entries, and nothing of the queue. So it costs
// etcd no more with ten thousand waiters than with one.
func TestLookWhileTheEntryAheadStandsReadsTheOwnEntries(t *testing.T) {
	for _, names := range [][]string{{"x"}, {"!x"}, {"w", "x", "!y"}} {
		t.Run(fmt.Sprint(names), func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				ahead, p := kit.Join(t, srv, holdtest.EntriesX), holdtest.Start(t, srv)
				var looks atomic.Int32
				p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
					txn, ok := c.Request.(*pb.TxnRequest)
					if !ok || kit.KindOf(c) != "read" {
						return etcdfake.Fate{}
					}
					looks.Add(1)
					if len(txn.Compare) != 1 || string(txn.Compare[0].Key) != ahead.Key || len(txn.Success) != len(names) {
						t.Errorf("the look compares %v, and reads %v", txn.Compare, txn.Success)
					}
					for _, op := range txn.Success {
						if r := op.GetRequestRange(); r.GetRangeEnd() != nil || !r.KeysOnly {
							t.Errorf("it reads %v", r)
						}
					}
					for _, op := range slices.Concat(txn.Success, txn.Failure) {
						if op.GetRequestRange() == nil {
							t.Errorf("it is not flat, or no read: %v", op)
						}
					}
					return etcdfake.Fate{}
				})
				done := acquireSetLater(kit.Within(t, time.Minute), p.Set(names...))
				kit.Queued(t, srv, holdtest.EntriesX, 2)
				if n := looks.Load(); n != 1 {
					t.Errorf("%d looks when the watch stands, want 1", n)
				}
				p.Link.Plan(nil)
				ahead.Release()
				holdtest.MustRelease(t, (<-done).holds[0])
			})
		})
	}
}

// The requests of each step behind one that has gone without a release.
func TestRequestsBehindAClaimThatIsLeft(t *testing.T) {
	const second = time.Second
	for name, c := range map[string]struct {
		waits, vanish bool // the caller waits before; the entry alone goes
		acquire       acquirer
		sent          map[string]int
	}{
		"a waiter":      {true, false, holdtest.AcquireSet, map[string]int{"event": 1, "read": 2, "clear": 1}},
		"a newcomer":    {false, false, holdtest.AcquireSet, map[string]int{"enqueue": 1, "read": 2, "clear": 1}},
		"one who tries": {false, false, holdtest.TryAcquireSet, map[string]int{"read": 3, "enqueue": 1, "clear": 1}},
		// The session lives: a look each second tells if that has cleared its claim.
		"a waiter, lives":   {true, true, holdtest.AcquireSet, map[string]int{"event": 1, "read": 8, "clear": 1}},
		"a newcomer, lives": {false, true, holdtest.AcquireSet, map[string]int{"enqueue": 1, "read": 8, "clear": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p, former := holdtest.Start(t, srv), kit.Join(t, srv, holdtest.EntriesX)
				end := former.Revoke
				if c.vanish {
					end = former.Vanish
				}
				done := make(chan []*hold.Hold, 1)
				call := func() {
					holds, err := c.acquire(kit.Within(t, time.Minute), p.Set("x"), hold.Request{})
					if err != nil {
						t.Error(err)
					}
					done <- holds
				}
				if c.waits {
					go call() // received below
					kit.Queued(t, srv, holdtest.EntriesX, 2)
				} else {
					end()
				}
				time.Sleep(second)
				p.Plan(nil)
				if c.waits {
					end()
				} else {
					go call() // received below
				}
				holds := <-done
				synctest.Wait()
				sent := p.Counts()
				maps.DeleteFunc(sent, func(kind string, _ int) bool { // what the session sends by itself
					return !slices.Contains([]string{"enqueue", "hand-off", "remove", "claim", "clear", "read", "event"}, kind)
				})
				if !maps.Equal(sent, c.sent) {
					t.Errorf("sent %v, want %v", sent, c.sent)
				}
				holdtest.MustRelease(t, holds[0])
			})
		})
	}
}
