package etcdtest_test

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/etcdtest"
)

func TestRevokeHolderRevokesTheOldestEntry(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	var sessions []*concurrency.Session
	for range 2 {
		sess, err := concurrency.NewSession(srv.Client(t), concurrency.WithTTL(600))
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, sess)
	}
	if err := concurrency.NewMutex(sessions[0], "queue").Lock(withTimeout(t)); err != nil {
		t.Fatal(err)
	}
	acquired := make(chan error, 1)
	go func() { // joined below
		acquired <- concurrency.NewMutex(sessions[1], "queue").Lock(withTimeout(t))
	}()
	srv.WaitForKeys(t, "queue/", 2)

	srv.RevokeHolder(t, "queue/")
	if err := <-acquired; err != nil {
		t.Error(err)
	}
	kvs := srv.Keys(t, "queue/")
	if len(kvs) != 1 || kvs[0].Lease != int64(sessions[1].Lease()) {
		t.Errorf("the queue is now %v", kvs)
	}
	srv.RevokeHolder(t, string(kvs[0].Key)) // the key of the entry will do, too
	srv.WaitForKeys(t, "queue/", 0)
}

func TestOccupyExcludesUntilRelease(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 3)
	release, second := c.Occupy(t, "queue/"), c.Member(1).Occupy(t, "queue/")
	sess, err := concurrency.NewSession(c.Client(t), concurrency.WithTTL(600))
	if err != nil {
		t.Fatal(err)
	}
	mu := concurrency.NewMutex(sess, "queue")
	if err := mu.TryLock(withTimeout(t)); err != concurrency.ErrLocked {
		t.Errorf("TryLock: %v", err)
	}
	acquired := make(chan error, 1)
	go func() { // joined below
		acquired <- mu.Lock(withTimeout(t))
	}()
	c.WaitForKeys(t, "queue/", 3)
	release()
	release()
	if len(c.Keys(t, "queue/")) != 2 || len(acquired) != 0 {
		t.Error("acquired before the second client has released")
	}
	second()
	if err := <-acquired; err != nil {
		t.Error(err)
	}
}

// failing is a testing.TB that records the message of Fatalf.
type failing struct {
	testing.TB
	message string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.message = format
	runtime.Goexit()
}

func TestContendersThatMeanNothingFailTheTest(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	if _, err := srv.Client(t).Put(context.Background(), "queue/without-a-lease", ""); err != nil {
		t.Fatal(err)
	}
	for want, f := range map[string]func(t testing.TB){
		"does not end in": func(t testing.TB) { srv.Occupy(t, "queue") },
		"there is no key": func(t testing.TB) { srv.RevokeHolder(t, "empty/") },
		"%q has no lease": func(t testing.TB) { srv.RevokeHolder(t, "queue/") },
	} {
		tb := &failing{TB: t}
		done := make(chan struct{})
		go func() { // joined below
			defer close(done)
			f(tb)
		}()
		<-done
		if !strings.Contains(tb.message, want) {
			t.Errorf("Fatalf(%q), want %q", tb.message, want)
		}
	}
}
