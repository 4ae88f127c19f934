// Package admin_test runs package admin against a real etcd, for what depends on the server: what a page costs,
// compaction, permissions, members that hang, namespaces, and etcd's own clients.
package admin_test

import (
	"context"
	"fmt"
	"iter"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
)

var deadline = testkit.Deadline

func open(t testing.TB, cli *clientv3.Client, owner string) *session.Session {
	t.Helper()
	return testkit.Open(t, cli, session.Options{Owner: owner})
}

func TestMain(m *testing.M) { testkit.Main(m) }

func mustLock(t testing.TB, mu *locker.Mutex) *locker.Lock {
	t.Helper()
	lk, err := mu.Lock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

func mustUnlock(t testing.TB, lk *locker.Lock) {
	t.Helper()
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Error(err)
	}
}

// watch runs a Watch until the test ends. Each call of next waits for one more event, as "what owner waiting".
func watch(t *testing.T, events func(context.Context) iter.Seq2[admin.Event, error]) (next func() string) {
	t.Helper()
	ctx, cancel := context.WithCancel(deadline(t))
	told, done := make(chan string, 1000), make(chan struct{})
	go func() { // joined by the cleanup
		defer close(done)
		for ev, err := range events(ctx) {
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				told <- "error: " + err.Error()
				return
			}
			who := ev.Entry.Owner
			if ev.Entry.Foreign {
				who = "foreign"
			}
			told <- fmt.Sprintf("%s %s %d", ev.What, who, ev.Waiting)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return func() string {
		select {
		case s := <-told:
			return s
		case <-ctx.Done():
			return "nothing more was told"
		}
	}
}

func expect(t *testing.T, next func() string, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := next(); got != w {
			t.Fatalf("told %q, want %q", got, w)
		}
	}
}
