package robustness

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
)

// Invariant 8, scenario 41: a thousand sessions wait for one lock and acquire it
// one after the other. Each release wakes one waiter, so the number of RPCs for
// each does not depend on how many wait.
func TestThousandWaitersAcquireInOrderWithConstantRPCsEach(t *testing.T) {
	waiters := rounds.Of(1000, 100)
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	long := session.Options{TTL: 600 * time.Second} // no renewal is sent during the test
	sessions := make([]*session.Session, waiters)
	for i := range sessions {
		sessions[i] = open(t, link.Client(), long)
	}
	held, err := locker.NewMutex(open(t, srv.Client(t), long), "x").Lock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := link.Wait(ctx, "Range", waiters); err != nil { // the watches of the session keys are established
		t.Fatal(err)
	}
	entries := srv.Client(t).Watch(ctx, "holdfast/lock/x/@/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-entries
	queued := 0
	before, began := link.Count(), time.Now()
	var order []int // protected by the lock under test
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
		for queued <= i { // until the waiter has its place
			resp, ok := <-entries
			if !ok || resp.Err() != nil {
				t.Fatal(resp.Err(), context.Cause(ctx))
			}
			for _, ev := range resp.Events {
				if ev.IsCreate() {
					queued++
				}
			}
		}
	}
	if err := link.Wait(ctx, "Txn", before["Txn"]+2*waiters); err != nil { // the reads that follow the watches
		t.Fatal(err)
	}
	start := time.Now()
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	t.Logf("%d hand-offs, %v each", waiters, time.Since(start)/time.Duration(waiters))
	if len(order) != waiters || !slices.IsSorted(order) {
		t.Errorf("%d acquired, in the order %v", len(order), order)
	}
	// Each waiter sends a Txn to queue, a watch request, a Txn that reads, another when
	// it wakes, and one to release. The cancellation of its watch is a message on the
	// stream, too, and may not have been sent yet. Each waiter requests the progress of
	// its watch every 2 s, and on a busy machine slow requests are repeated: up to one
	// of each waiter in 5 s.
	sent, took := link.Count().Since(before), time.Since(began)
	progress, repeated := waiters*int(took/(2*time.Second)+1), waiters/5+waiters*int(took.Seconds())/5
	if sent["Txn"] < 3*waiters || sent["Txn"] > 4*waiters+repeated || sent["Range"] > repeated ||
		sent["Watch"] > 2*waiters+progress {
		t.Errorf("%d waiters sent %v in %v", waiters, sent, took)
	}
}
