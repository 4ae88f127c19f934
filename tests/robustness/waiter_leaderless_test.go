package robustness

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// Scenario 35: the member that the waiter watches loses the others. It says so,
// and the waiter tries again, without haste, until there is a leader.
func TestWaiterOnAMemberWithoutALeaderAcquiresOnceThereIsOne(t *testing.T) {
	t.Parallel()
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cluster := etcdtest.StartCluster(t, 3)
			alone := cluster.Member(2)
			link := alone.Link(t)
			long := session.Options{TTL: 600 * time.Second, Retry: quick} // no renewal falls into the test
			held := <-holdLater(t, kind, open(t, cluster.Client(t), long), "x")
			sess := open(t, link.Client(), long)
			before := settled(t, link)
			waiting := holdLater(t, kind, sess, "x")
			if err := link.Wait(deadline(t), "Txn", before["Txn"]+2); err != nil { // its watch stands
				t.Fatal(err)
			}
			// A watch like the waiter's: what etcd tells this one, it tells the other.
			witness := alone.Client(t).Watch(clientv3.WithRequireLeader(deadline(t)), held.Key(), clientv3.WithCreatedNotify())
			<-witness

			stopped := cluster.Members()[:2]
			for _, m := range stopped {
				m.Stop()
			}
			var why error
			for resp := range witness {
				why = resp.Err()
			}
			if !errors.Is(why, rpctypes.ErrNoLeader) {
				t.Errorf("this test has gone blind: a watch ended with %v", why)
			}
			if err := link.Wait(deadline(t), "Txn", link.Count()["Txn"]+2); err != nil { // it tries
				t.Fatal(err)
			}
			if len(waiting) != 0 {
				t.Error("it holds by what a member alone has said")
			}
			restart(t, stopped...)
			if err := release(deadline(t), held); err != nil {
				t.Fatal(err)
			}
			if h := <-waiting; h != nil && h.Token() <= held.Token() {
				t.Errorf("token %v after %v", h.Token(), held.Token())
			}
			// It has queued, has looked whenever a watch failed, and has judged how the one
			// ahead left.
			if spent := link.Count().Since(before); spent.Total() > 40 {
				t.Errorf("spent %v", spent)
			}
		})
	}
}
