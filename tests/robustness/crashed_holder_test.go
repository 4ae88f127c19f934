package robustness

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// Scenario 42: a holder that crashes and restarts under the same owner queues
// behind the clients that were waiting, and acquires with a larger token.
func TestCrashedHolderThatReturnsQueuesBehindTheWaiters(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	other := open(t, srv.Client(t), session.Options{})
	first := startChild(t, srv.Endpoints(), childTTL)
	held, waiting := make(map[string]childEvent), make(map[string]<-chan hold)
	for kind := range kinds {
		first.order(t, order{Kind: kind, Name: "x", Owner: "the same"})
		held[kind] = first.expect(t, kind, "x", "holds")
		waiting[kind] = holdLater(t, kind, other, "x")
		srv.WaitForKeys(t, "holdfast/"+kind+"/x/@/", 2)
	}
	first.pause(t) // its lease starts to run out while the second process starts
	second := startChild(t, srv.Endpoints(), childTTL)
	first.Kill()
	for kind := range kinds {
		second.order(t, order{Kind: kind, Name: "x", Owner: "the same"})
		waiter := <-waiting[kind]
		if waiter == nil {
			return
		}
		kvs := srv.WaitForKeys(t, "holdfast/"+kind+"/x/@/", 2)
		before := time.Now()
		if err := release(deadline(t), waiter); err != nil {
			t.Error(err)
		}
		again := second.expect(t, kind, "x", "holds")
		if again.Since.Before(before) {
			t.Errorf("%s: the restarted process held together with the waiter", kind)
		}
		if waiter.Token() <= held[kind].Token || again.Token <= waiter.Token() ||
			int64(again.Token) != kvs[1].CreateRevision {
			t.Errorf("%s: tokens %v, %v, %v; entries %v", kind, held[kind].Token, waiter.Token(), again.Token, kvs)
		}
	}
}

// Scenario 40 with a real process: the process that waits between the holder and the last waiter is killed. The expiry
// of its entry wakes the last waiter, which must keep waiting for the holder.
func TestWaiterKilledMidQueueDoesNotPromoteTheNext(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	ahead := open(t, srv.Client(t), session.Options{})
	behind := open(t, link.Client(), session.Options{TTL: 600e9}) // no renewal is sent during the test
	settled(t, link)
	middle := startChild(t, srv.Endpoints(), childTTL)
	held, waiting := make(map[string]hold), make(map[string]<-chan hold)
	for kind := range kinds {
		prefix := "holdfast/" + kind + "/x/@/"
		held[kind] = <-holdLater(t, kind, ahead, "x")
		middle.order(t, order{Kind: kind, Name: "x"})
		srv.WaitForKeys(t, prefix, 2)
		before := link.Count()["Txn"]
		waiting[kind] = holdLater(t, kind, behind, "x")
		if err := link.Wait(deadline(t), "Txn", before+2); err != nil { // its watch is established
			t.Fatal(err)
		}
	}
	before := link.Count()["Txn"]
	middle.Kill()
	// When the entry ahead is gone, each waiter finds the next one ahead with a Txn,
	// watches it, and reads with another Txn whether it still exists.
	if err := link.Wait(deadline(t), "Txn", before+2*len(kinds)); err != nil {
		t.Fatal(err)
	}
	for kind := range kinds {
		if len(waiting[kind]) != 0 {
			t.Errorf("%s: the waiter holds together with the holder", kind)
		}
		if held[kind] == nil {
			continue
		}
		if err := release(deadline(t), held[kind]); err != nil {
			t.Error(err)
		}
		if h := <-waiting[kind]; h != nil && h.Token() <= held[kind].Token() {
			t.Errorf("%s: token %v after %v", kind, h.Token(), held[kind].Token())
		}
	}
}
