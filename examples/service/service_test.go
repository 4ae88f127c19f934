// Package service_test has the test that every service with a lock should have: when it loses its connection, it stops
// working before another process holds its lock.
package service_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func TestMain(m *testing.M) { leak.Main(m) }

// exporter stands for your service: one process at a time exports, and records its progress in etcd.
type exporter struct {
	sess    *session.Session
	working atomic.Bool
	batches atomic.Int64
	done    chan struct{} // closed when Run has returned
}

// Run exports while this process holds the lock, until ctx ends or the session is closed.
func (e *exporter) Run(ctx context.Context) {
	mu := locker.NewMutex(e.sess, "export")
	for ctx.Err() == nil {
		err := mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
			e.working.Store(true)
			defer e.working.Store(false)
			w := etcdfence.NewWriter(lk)
			for {
				if _, err := w.Put(ctx, "export/progress", fmt.Sprint(e.batches.Add(1))); err != nil {
					return err // the lock was lost, or ctx has ended
				}
			}
		})
		if errors.Is(err, holdfast.ErrClosed) {
			return
		}
		if ctx.Err() == nil {
			slog.Warn("the export was interrupted", "error", err)
		}
		select { // what fails at once must not be tried all the time
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// startExporter runs an exporter until the test ends.
func startExporter(t *testing.T, cli *clientv3.Client) *exporter {
	t.Helper()
	e := &exporter{sess: newSession(t, cli), done: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	go func() { // joined in the cleanup
		defer close(e.done)
		e.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-e.done })
	return e
}

// newSession opens a session with a short TTL, so that a loss takes two seconds instead of fifteen.
func newSession(t *testing.T, cli *clientv3.Client) *session.Session {
	t.Helper()
	sess, err := session.New(t.Context(), cli, session.Options{
		TTL: 2 * time.Second, Logger: slog.New(slog.DiscardHandler),
		Clock: session.MonotonicClock(), // the default one reads real time, also in virtual time
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sess.Close(context.Background()) })
	return sess
}

// within waits for a condition that has no event to wait for.
func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// guide begins

func TestServiceStopsBeforeAnotherProcessHoldsItsLock(t *testing.T) {
	for name, fail := range map[string]func(*etcdtest.Link){
		"its connections are reset":   (*etcdtest.Link).Cut,
		"its packets are dropped":     (*etcdtest.Link).BlackHole,
		"it hears no replies":         (*etcdtest.Link).BlackHoleReplies,
		"its renewals alone are lost": func(l *etcdtest.Link) { l.Stall("LeaseKeepAlive") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := etcdtest.Start(t) // a real etcd
			link := srv.Link(t)      // the service's way to it, which can fail
			svc := startExporter(t, link.Client())
			within(t, "it exports", func() bool { return svc.batches.Load() > 0 })

			// Another client wants the lock, over a connection that works. Two
			// entries: the service holds, the other one waits.
			other := locker.NewMutex(newSession(t, srv.Client(t)), "export")
			acquired := make(chan *locker.Lock, 1)
			go func() { // received below
				lk, err := other.Lock(t.Context())
				if err != nil {
					t.Error(err)
				}
				acquired <- lk
			}()
			srv.WaitForKeys(t, "holdfast/lock/export/@/", 2)

			fail(link)
			lk := <-acquired
			if svc.working.Load() {
				t.Error("the service still works, and another process holds its lock")
			}
			// Etcd's own record: everything the service wrote is older than the other's lock.
			for _, kv := range srv.Keys(t, "export/progress") {
				if kv.ModRevision > lk.AcquiredRevision() {
					t.Errorf("the service wrote revision %d, and the other acquired at %d",
						kv.ModRevision, lk.AcquiredRevision())
				}
			}

			// All is well again, and it is the service's turn.
			link.Heal()
			before := svc.batches.Load()
			if err := lk.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
			within(t, "it exports again", func() bool { return svc.batches.Load() > before+1 })
		})
	}
}

// guide ends

// slow returns a client whose requests take time, as a service's do.
func slow(srv *etcdfake.Server) *clientv3.Client {
	link := srv.Link()
	link.Delay(time.Millisecond)
	return link.Client()
}

func TestServiceStopsWhenItsLockIsTakenAway(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		const entries = "holdfast/lock/export/@/"
		svc := startExporter(t, slow(srv))
		time.Sleep(time.Second) // virtual: it exports
		first := srv.Keys(entries)[0]

		// A service that loops soon holds again, and may never be seen at rest. But it
		// holds by another entry.
		srv.RevokeHolder(entries)
		time.Sleep(time.Second)
		if kvs := srv.Keys(entries); len(kvs) != 1 || kvs[0].CreateRevision == first.CreateRevision {
			t.Fatalf("it does not hold again: %v", kvs)
		}

		// With another client behind it, it has to wait, and can be seen at rest.
		release := srv.Occupy(entries)
		srv.RevokeHolder(entries)
		time.Sleep(time.Second)
		if before := svc.batches.Load(); svc.working.Load() {
			t.Error("it still works, and another client holds its lock")
		} else if time.Sleep(time.Minute); svc.batches.Load() != before {
			t.Error("it has written, and another client holds its lock")
		}

		release()
		time.Sleep(10 * time.Second)
		if !svc.working.Load() {
			t.Error("it is its turn, and it does not work")
		}
	})
}

func TestServiceEndsWithItsSession(t *testing.T) {
	t.Parallel()
	svc := startExporter(t, etcdtest.Start(t).Client(t))
	within(t, "it exports", func() bool { return svc.batches.Load() > 0 })
	if err := svc.sess.Close(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case <-svc.done:
	case <-time.After(10 * time.Second):
		t.Error("it still runs, and its session is closed")
	}
}
