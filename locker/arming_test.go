package locker_test

import (
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
)

// Between the answer that names a waiter's predecessor and the moment its watch
// stands there is a gap, and no event will ever tell of a predecessor who left
// in it: the read after the watch stands has to. Without that read the waiter
// would be woken by the recheck, 30 s later.
func TestPredecessorThatLeavesBeforeTheWatchStandsWakesItsWaiterAtOnce(t *testing.T) {
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
			// The put and back, the watch, the read that finds the predecessor gone and how.
			held: 500*time.Millisecond + 6*oneWay,
		},
		"while the answer to its put travels": {
			slow: func(c etcdfake.Call) bool {
				txn, ok := c.Request.(*pb.TxnRequest)
				return ok && len(txn.Compare) == 2 // an enqueue: own entry, session key
			},
			fate:  etcdfake.Fate{Reply: time.Second},
			leave: 500 * time.Millisecond,
			held:  time.Second + 6*oneWay,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				a, b := start(t, srv), start(t, srv)
				lk := mustLock(t, locker.NewMutex(a.sess, "x"))
				b.link.Plan(func(call etcdfake.Call) etcdfake.Fate {
					if c.slow(call) {
						return c.fate
					}
					return etcdfake.Fate{}
				})
				called := time.Now()
				waiter := lockLater(deadline(t), locker.NewMutex(b.sess, "x"))
				time.Sleep(c.leave)
				if err := lk.Unlock(deadline(t)); err != nil {
					t.Fatal(err)
				}
				r := <-waiter
				if r.err != nil {
					t.Fatalf("after %v: %v", time.Since(called), r.err)
				}
				if took := time.Since(called); took != c.held {
					t.Errorf("held %v after the call, want %v", took, c.held)
				}
			})
		})
	}
}
