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
	var counted requests
	cli := counted.client(t, link)
	long := session.Options{TTL: 600 * time.Second} // no renewal is sent during the test
	sessions := make([]*session.Session, waiters)
	for i := range sessions {
		sessions[i] = open(t, cli, long)
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
	before, watches, slow := link.Count(), counted.watches.Load(), counted.slow.Load()
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
	// Each waiter sends a Txn to queue, asks for a watch, sends a Txn that reads, another when it wakes, and one to
	// release. What was slow may have been sent again.
	sent := link.Count().Since(before)
	watches, slow = counted.watches.Load()-watches, counted.slow.Load()-slow
	repeated := waiters/5 + int(slow)
	if sent["Txn"] < 3*waiters || sent["Txn"] > 4*waiters+repeated || sent["Range"] > repeated ||
		watches < int64(waiters) || watches > int64(waiters+repeated) {
		t.Errorf("%d waiters sent %v and asked for %d watches; %d requests were slow", waiters, sent, watches, slow)
	}
}
