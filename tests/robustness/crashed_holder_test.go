package robustness

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// Scenario 42: who crashes and comes back with the same identity queues like
// anyone, behind those who were waiting, and holds with a larger token.
func TestHolderThatCrashedAndCameBackQueuesLikeAnyone(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	other := open(t, srv.Client(t), session.Options{})
	first := startChild(t, srv.Endpoints(), childTTL)
	held, waiting := make(map[string]childEvent), make(map[string]<-chan handle)
	for kind := range kinds {
		first.tell(t, order{Kind: kind, Name: "x", Owner: "the same"})
		held[kind] = first.hear(t, kind, "x", "holds")
		waiting[kind] = holdLater(t, kind, other, "x")
		srv.WaitForKeys(t, "holdfast/"+kind+"/x/@/", 2)
	}
	first.stop(t) // so that its lease does not outlive a slow start of the second
	second := startChild(t, srv.Endpoints(), childTTL)
	first.Kill()
	for kind := range kinds {
		second.tell(t, order{Kind: kind, Name: "x", Owner: "the same"})
		between := <-waiting[kind]
		if between == nil {
			return
		}
		kvs := srv.WaitForKeys(t, "holdfast/"+kind+"/x/@/", 2)
		before := time.Now()
		if err := release(deadline(t), between); err != nil {
			t.Error(err)
		}
		again := second.hear(t, kind, "x", "holds")
		if again.Since.Before(before) {
			t.Errorf("%s: it held beside the other", kind)
		}
		if between.Token() <= held[kind].Token || again.Token <= between.Token() || int64(again.Token) != kvs[1].CreateRevision {
			t.Errorf("%s: tokens %v, %v, %v; entries %v", kind, held[kind].Token, between.Token(), again.Token, kvs)
		}
	}
}

// Scenario 40, with a process that is killed: it stood between two others, and
// its end wakes the one behind it, who goes on waiting for the one ahead.
func TestWaiterThatIsKilledMidQueuePromotesNobody(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	ahead := open(t, srv.Client(t), session.Options{})
	behind := open(t, link.Client(), session.Options{TTL: 600e9}) // no renewal falls into the test
	settled(t, link)
	b := startChild(t, srv.Endpoints(), childTTL)
	held, waiting := make(map[string]handle), make(map[string]<-chan handle)
	for kind := range kinds {
		prefix := "holdfast/" + kind + "/x/@/"
		held[kind] = <-holdLater(t, kind, ahead, "x")
		b.tell(t, order{Kind: kind, Name: "x"})
		srv.WaitForKeys(t, prefix, 2)
		before := link.Count()["Txn"]
		waiting[kind] = holdLater(t, kind, behind, "x")
		if err := link.Wait(deadline(t), "Txn", before+2); err != nil { // its watch stands
			t.Fatal(err)
		}
	}
	before := link.Count()["Txn"]
	b.Kill()
	// When the one ahead has gone, each learns by a Txn who is ahead now, watches
	// that one, and reads whether it is still there.
	if err := link.Wait(deadline(t), "Txn", before+2*len(kinds)); err != nil {
		t.Fatal(err)
	}
	for kind := range kinds {
		if len(waiting[kind]) != 0 {
			t.Errorf("%s: it holds beside the other", kind)
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
