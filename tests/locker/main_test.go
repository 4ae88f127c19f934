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

// open starts a session and closes it with the test, link healed or not.
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

// mustLock locks what is free, or soon will be.
func mustLock(t *testing.T, mu *locker.Mutex) *locker.Lock {
	t.Helper()
	lk, err := mu.Lock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

// deadline is a context for what must not take long; a test that waits for it
// has failed.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// soon is a context that ends while the test looks on.
func soon(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits for a condition that has no event to wait for.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-tick.C {
		if ok() {
			return
		}
	}
	t.Fatalf("did not happen: %s", what)
}

// entries are what stands under the entries prefix of a lock, in order.
func entries(t *testing.T, srv *etcdtest.Server, name string) []*mvccpb.KeyValue {
	t.Helper()
	return srv.Keys(t, "holdfast/lock/"+name+"/@/")
}

// interval is the time, in revisions, for which an entry stood in etcd.
type interval struct {
	key      string
	from, to int64 // to is 0 while it stands
}

// intervals are all entries a lock ever had, by etcd's own record, in the order
// in which they were put. With strict FIFO and one holder at a time, each must
// have been acquired only after all before it had ended.
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

// settled waits until a new session has asked what it asks beside its Grant: for
// the version, and what stands once its session key is watched.
func settled(t *testing.T, link *etcdtest.Link) {
	t.Helper()
	for _, rpc := range []string{"Status", "Range"} {
		if err := link.Wait(deadline(t), rpc, 1); err != nil {
			t.Fatal(err)
		}
	}
}
