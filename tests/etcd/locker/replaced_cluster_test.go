package locker_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// A new, empty cluster takes over the addresses of the old one. Holders lose their locks with CauseClusterChanged, and
// waiters queue again in the new cluster, whose revisions start from 1.
func TestReplacedClusterEndsLocksAndWaitersQueueAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var replaced atomic.Bool
	srv := etcdtest.Start(t, etcdtest.Options{Dir: dir, Configure: func(c *embed.Config) {
		if replaced.Load() {
			c.InitialClusterToken = "another" // changes the cluster ID
		}
	}})
	events := make(chan session.Event, 100)
	a := open(t, srv.Client(t), session.Options{TTL: 600 * time.Second,
		OnStateChange: func(ev session.Event) { events <- ev }})
	b := open(t, srv.Client(t), session.Options{TTL: 3 * time.Second}) // holds no lock: notices at its next renewal
	old := lease.Open(a).Lease().Cluster()
	held := []*locker.Lock{mustLock(t, locker.NewMutex(a, "x")), mustLock(t, locker.NewMutex(a, "y"))}
	waiter := lockLater(deadline(t), locker.NewMutex(b, "x"))
	srv.WaitForKeys(t, "holdfast/lock/x/@/", 2)

	srv.Stop()
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) == 0 {
		t.Fatal(left, err)
	}
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	replaced.Store(true)
	if err := srv.Restart(); err != nil {
		t.Fatal(err)
	}

	for _, lk := range held {
		select { // long before the next renewal and the end of the lease
		case <-lk.Done():
		case <-deadline(t).Done():
			t.Fatal("the holder has not noticed the loss")
		}
		var lost *holdfast.LostError
		if err := lk.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseClusterChanged || lost.Name != lk.Name() {
			t.Errorf("Check: %v", err)
		}
	}
	if ev := <-events; ev.State != holdfast.Lost || !errors.Is(ev.Err, holdfast.ErrLost) {
		t.Errorf("event %+v", ev)
	}
	if ev := <-events; ev.State != holdfast.Connected || lease.Open(a).Lease().Cluster() == old {
		t.Errorf("event %+v, cluster %x (was %x)", ev, lease.Open(a).Lease().Cluster(), old)
	}
	r := <-waiter
	if r.err != nil {
		t.Fatal(r.err)
	}
	if kvs := entries(t, srv, "x"); len(kvs) != 1 || string(kvs[0].Key) != r.lk.Key() ||
		lease.Open(b).Lease().Cluster() == old {
		t.Errorf("entries %v, cluster %x (was %x)", kvs, lease.Open(b).Lease().Cluster(), old)
	}
}
