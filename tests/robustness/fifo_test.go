package robustness

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// Invariant 8, scenario 41: a thousand processes' worth of waiters, released in
// a chain. Each costs the same, however many there are: a release wakes one.
func TestAThousandWaitersAreDrainedInOrderAtAConstantPriceEach(t *testing.T) {
	waiters := rounds(1000, 250)
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	long := session.Options{TTL: 600 * time.Second} // no renewal falls into the test
	sessions := make([]*session.Session, waiters)
	for i := range sessions {
		sessions[i] = open(t, link.Client(), long)
	}
	held, err := locker.NewMutex(open(t, srv.Client(t), long), "x").Lock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := link.Wait(ctx, "Range", waiters); err != nil { // the watches of the session keys stand
		t.Fatal(err)
	}
	before, began := link.Count(), time.Now()
	var order []int // guarded by the lock alone
	var wg sync.WaitGroup
	for i, sess := range sessions {
		wg.Go(func() {
			err := locker.NewMutex(sess, "x").Do(ctx, func(context.Context, *locker.Lock) error {
				order = append(order, i)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		// It has its place once its watch is armed by a read.
		if err := link.Wait(ctx, "Txn", before["Txn"]+2*(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	t.Logf("%d hand-overs, %v each", waiters, time.Since(start)/time.Duration(waiters))
	if len(order) != waiters || !slices.IsSorted(order) {
		t.Errorf("%d acquired, in the order %v", len(order), order)
	}
	// In: a Txn, a watch, a Txn that reads. Woken: another one. Out: a Txn. The
	// cancellation of the watch is a message of its stream, and may still be on its
	// way.
	// A busy machine answers late: then a request is sent again, and each waiter
	// asks every 2 s whether its watch lives.
	spent := link.Count().Since(before)
	asked := waiters * int(time.Since(began)/(2*time.Second)+1)
	if spent["Txn"] < 4*waiters || spent["Txn"] > 4*waiters+waiters/5 || spent["Range"] > waiters/5 || spent["Watch"] > 2*waiters+asked {
		t.Errorf("spent %v on %d waiters", spent, waiters)
	}
}
