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

// Scenario 35: the member that serves a waiter's watch loses its leader and cancels
// the watch. The waiter retries, with backoff, until there is a leader again. How often is counted in virtual time:
// TestWaiterWhoseWatchFailsMissesNoRelease of internal/queue.
func TestWaiterOnALeaderlessMemberAcquiresAfterTheElection(t *testing.T) {
	t.Parallel()
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{DefaultTicks: true})
			alone := cluster.Member(2)
			link := alone.Link(t)
			long := session.Options{TTL: 600 * time.Second} // no renewal is sent during the test
			held := <-holdLater(t, kind, open(t, cluster.Client(t), long), "x")
			sess := open(t, link.Client(), long)
			before := settled(t, link)
			waiting := holdLater(t, kind, sess, "x")
			if err := link.Wait(deadline(t), "Txn", before["Txn"]+2); err != nil { // its watch is established
				t.Fatal(err)
			}
			// A watch like the waiter's, to see how etcd ends that.
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
				t.Errorf("the test proves nothing: the watch ended with %v, want ErrNoLeader", why)
			}
			if err := link.Wait(deadline(t), "Txn", link.Count()["Txn"]+2); err != nil { // it retries
				t.Fatal(err)
			}
			if len(waiting) != 0 {
				t.Error("the waiter acquired without a quorum")
			}
			restart(t, stopped...)
			if err := release(deadline(t), held); err != nil {
				t.Fatal(err)
			}
			if h := <-waiting; h != nil && h.Token() <= held.Token() {
				t.Errorf("token %v after %v", h.Token(), held.Token())
			}
		})
	}
}
