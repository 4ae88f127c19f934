// Package robustness has the tests of the whole: real processes, real faults,
// many rounds, judged by etcd's own record.
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

// settled counts the RPCs of a link once the session on it has nothing to send
// but renewals: the last that New sets off is a read of the session key.
func settled(t *testing.T, link *etcdtest.Link) etcdtest.Counts {
	t.Helper()
	if err := link.Wait(deadline(t), "Range", 1); err != nil {
		t.Fatal(err)
	}
	return link.Count()
}

// deadline is a context for what must not take long; a test that waits for it
// has failed.
func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// soon is a context that ends while the test looks on.
func soon(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// joinSignal tells when a goroutine has taken its place in line: Lock asks for
// Done only after that.
type joinSignal struct {
	context.Context
	once   sync.Once
	joined chan struct{}
}

func (j *joinSignal) Done() <-chan struct{} {
	j.once.Do(func() { close(j.joined) })
	return j.Context.Done()
}
