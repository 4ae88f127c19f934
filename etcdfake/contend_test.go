package etcdfake_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

const (
	lockPrefix     = "holdfast/lock/nightly/@/"
	electionPrefix = "holdfast/election/nightly/@/"
)

// open opens a session on its own client, and closes it with the test.
func open(t *testing.T, srv *etcdfake.Server) *session.Session {
	t.Helper()
	sess, err := session.New(t.Context(), srv.Client(t), session.Options{
		Clock: session.MonotonicClock(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sess.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return sess
}

func TestRevokeHolderLosesTheLockAndTheLeadership(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		lk, err := locker.NewMutex(open(t, srv), "nightly").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		term, err := election.New(open(t, srv), "nightly").With(election.Options{Value: "v"}).Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		srv.RevokeHolder(lockPrefix)
		<-lk.Done()
		if err := lk.Check(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("the lock: %v", err)
		}
		if err := term.Check(); err != nil {
			t.Errorf("the leadership: %v", err)
		}
		srv.RevokeHolder(term.Key()) // the key of the entry will do, too
		<-term.Done()
		if err := term.Check(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("the leadership: %v", err)
		}
	})
}

func TestRevokeHolderRevokesTheOldestEntry(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		cli := srv.Client(t)
		for _, key := range []string{"queue/b", "queue/a", "queue/c"} {
			lease, err := cli.Grant(t.Context(), 60)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := cli.Put(t.Context(), key, "", clientv3.WithLease(lease.ID)); err != nil {
				t.Fatal(err)
			}
		}
		srv.RevokeHolder("queue/")
		if kvs := srv.Keys("queue/"); len(kvs) != 2 || string(kvs[0].Key) != "queue/a" {
			t.Errorf("the queue is now %v", kvs)
		}
	})
}

func TestOccupyExcludesUntilRelease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		release, resign := srv.Occupy(lockPrefix), srv.Occupy(electionPrefix)
		sess := open(t, srv)
		mu := locker.NewMutex(sess, "nightly")
		if _, err := mu.TryLock(t.Context()); !errors.Is(err, locker.ErrLocked) {
			t.Errorf("TryLock: %v", err)
		}
		start := time.Now()
		time.AfterFunc(time.Minute, release)
		lk, err := mu.Lock(t.Context())
		if err != nil || time.Since(start) != time.Minute {
			t.Fatalf("Lock: %v after %v", err, time.Since(start))
		}
		second := srv.Occupy(lockPrefix)
		if kvs := srv.Keys(lockPrefix); len(kvs) != 2 || string(kvs[0].Key) != lk.Key() {
			t.Errorf("it does not queue behind the holder: %v", kvs)
		}
		second()
		second()
		if err := lk.Unlock(t.Context()); err != nil {
			t.Error(err)
		}

		elected := make(chan error, 1)
		go func() { // joined below
			_, err := election.New(sess, "nightly").With(election.Options{Value: "v"}).Campaign(t.Context())
			elected <- err
		}()
		synctest.Wait()
		if len(elected) != 0 {
			t.Error("elected beside the other client")
		}
		resign()
		if err := <-elected; err != nil {
			t.Error(err)
		}
	})
}

func TestContendersThatMeanNothingPanic(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		srv.Put("queue/without-a-lease", "")
		for want, f := range map[string]func(){
			`"queue" does not end in "/"`:          func() { srv.Occupy("queue") },
			`there is no key under "empty/"`:       func() { srv.RevokeHolder("empty/") },
			`"queue/without-a-lease" has no lease`: func() { srv.RevokeHolder("queue/") },
		} {
			func() {
				defer func() {
					if got, _ := recover().(string); !strings.Contains(got, want) {
						t.Errorf("panic %q, want %q", got, want)
					}
				}()
				f()
			}()
		}
	})
}
