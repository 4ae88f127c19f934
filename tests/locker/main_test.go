package locker_test

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open starts a session and closes it when the test ends, even if its link is still broken.
func open(t *testing.T, cli *clientv3.Client, o session.Options) *session.Session {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	sess, err := session.New(deadline(t), cli, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = sess.Close(ctx)
	})
	return sess
}

// mustLock acquires a lock that is free or soon will be.
func mustLock(t *testing.T, mu *locker.Mutex) *locker.Lock {
	t.Helper()
	lk, err := mu.Lock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

// deadline returns a context with a generous timeout; a test that reaches it has failed.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// soon returns a context that is expected to end during the test.
func soon(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually polls for a condition that no event announces.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-tick.C {
		if ok() {
			return
		}
	}
	t.Fatalf("timed out waiting until %s", what)
}

// entries returns the entries of a lock, in queue order.
func entries(t *testing.T, srv *etcdtest.Server, name string) []*mvccpb.KeyValue {
	t.Helper()
	return srv.Keys(t, "holdfast/lock/"+name+"/@/")
}

// interval is the range of revisions during which an entry existed.
type interval struct {
	key      string
	from, to int64 // to is 0 while it exists
}

// intervals returns all entries that a lock ever had, from etcd's history, in the order of their creation.
func intervals(t *testing.T, srv *etcdtest.Server, name string) []interval {
	t.Helper()
	var all []interval
	for _, ev := range srv.History(t, "holdfast/lock/"+name+"/@/") {
		key := string(ev.Kv.Key)
		if ev.IsCreate() {
			all = append(all, interval{key: key, from: ev.Kv.ModRevision})
			continue
		}
		i := slices.IndexFunc(all, func(iv interval) bool { return iv.key == key && iv.to == 0 })
		if i >= 0 && ev.Type == mvccpb.Event_DELETE {
			all[i].to = ev.Kv.ModRevision
		}
	}
	return all
}

// settled waits until a new session has sent its startup requests: the version query, and the read that follows the
// watch of its session key. Otherwise they would be counted in the test.
func settled(t *testing.T, link *etcdtest.Link) {
	t.Helper()
	for _, rpc := range []string{"Status", "Range"} {
		if err := link.Wait(deadline(t), rpc, 1); err != nil {
			t.Fatal(err)
		}
	}
}
