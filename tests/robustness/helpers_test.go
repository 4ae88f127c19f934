// Package robustness tests the packages together, under faults: real processes,
// clusters and networks, and simulations in virtual time. Most tests compare what
// holders observe with the history of etcd's store.
package robustness

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// open starts a session and closes it with the test.
func open(t testing.TB, cli *clientv3.Client, o session.Options) *session.Session {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
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

// settled waits until the session on a link sends nothing but renewals, and returns
// the RPCs so far. The last request that New causes is a read of the session key.
func settled(t *testing.T, link *etcdtest.Link) etcdtest.Counts {
	t.Helper()
	if err := link.Wait(deadline(t), "Range", 1); err != nil {
		t.Fatal(err)
	}
	return link.Count()
}

// deadline returns a context of a minute, for calls that are expected to mustSucceed
// much sooner.
func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// soon returns a context for calls that are expected to run into its deadline.
func soon(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// joinSignal is a context that closes joined at the first call of Done. Lock calls
// Done only after the goroutine has joined the queue of its session.
type joinSignal struct {
	context.Context
	once   sync.Once
	joined chan struct{}
}

func (j *joinSignal) Done() <-chan struct{} {
	j.once.Do(func() { close(j.joined) })
	return j.Context.Done()
}
