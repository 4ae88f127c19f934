package locker_test

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func TestMain(m *testing.M) { leak.Main(m) }

// lockable is a Mutex or an RWMutex.
type lockable interface {
	Lock(ctx context.Context) (*locker.Lock, error)
}

func lockLater(ctx context.Context, mu lockable) <-chan result {
	done := make(chan result, 1)
	go func() { // ends with ctx; the test receives from done
		lk, err := mu.Lock(ctx)
		done <- result{lk, err}
	}()
	return done
}

// mustLock locks what is free, or soon will be.
func mustLock(t *testing.T, mu lockable) *locker.Lock {
	t.Helper()
	lk, err := mu.Lock(kit.Within(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

// owns reports whether a lock is the first entry of its queue in etcd.
func owns(srv *etcdfake.Server, lk *locker.Lock) bool {
	kvs := kit.Standing(srv, lk.Name())
	return len(kvs) > 0 && string(kvs[0].Key) == lk.Key() && kvs[0].CreateRevision == int64(lk.Token())
}

// open starts a session and closes it with the test, link healed or not.
func open(t testing.TB, cli *clientv3.Client, o session.Options) *session.Session {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if o.Clock == nil {
		o.Clock = session.MonotonicClock() // that of the bubble: a slow machine changes nothing
	}
	sess, err := session.New(kit.Within(t, time.Minute), cli, &o)
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

type result struct {
	lk  *locker.Lock
	err error
}

func mustUnlock(t *testing.T, lk interface{ Unlock(context.Context) error }) {
	t.Helper()
	if err := lk.Unlock(kit.Within(t, time.Minute)); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}
