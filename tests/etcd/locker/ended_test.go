package locker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// Sessions that hold or wait ahead of a writer are closed. It finds that in etcd's history, in reads inside a Txn, and
// does not wait for its lock delay, which is longer than the test takes.
func TestWriterBehindSessionsThatHaveClosedDoesNotDelay(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	queue := func(n int, acquire func(rw *locker.RWMutex) error) *session.Session {
		sess := open(t, cli, session.Options{LockDelay: time.Minute})
		done := make(chan error, 1)
		go func() { done <- acquire(locker.NewRWMutex(sess, "table")) }()
		srv.WaitForKeys(t, "holdfast/lock/table/@/", n)
		t.Cleanup(func() { <-done })
		return sess
	}
	first := mustLock(t, locker.NewMutex(open(t, cli, session.Options{}), "table"))
	ctx, cancel := context.WithCancel(deadline(t))
	defer cancel()
	held := make(chan *locker.ReadLock, 1)
	var closing []*session.Session
	granted := make(chan error, 3)
	for i := range 3 {
		closing = append(closing, queue(2+i, func(rw *locker.RWMutex) error {
			_, err := rw.RLock(ctx)
			granted <- err
			return err
		}))
	}
	queue(5, func(rw *locker.RWMutex) error {
		lk, err := rw.RLock(ctx)
		held <- lk
		return err
	})
	writer := make(chan error, 1)
	queue(6, func(rw *locker.RWMutex) error {
		lk, err := rw.Lock(ctx)
		if err == nil {
			err = lk.Unlock(ctx)
		}
		writer <- err
		return err
	})
	closes := func(sess *session.Session) {
		t.Helper()
		if err := sess.Close(ctx); err != nil {
			t.Error(err)
		}
		for i := range 100 {
			if _, err := cli.Put(ctx, "other", fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	closes(closing[0]) // it waits
	if err := <-granted; !errors.Is(err, holdfast.ErrClosed) {
		t.Fatal(err)
	}
	if err := first.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	last := <-held
	for range closing[1:] {
		if err := <-granted; err != nil {
			t.Fatal(err)
		}
	}
	for _, holds := range closing[1:] {
		closes(holds)
	}
	began := time.Now()
	if err := last.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-writer; err != nil {
		t.Errorf("the writer, after %v: %v", time.Since(began), err)
	}
	t.Logf("the writer held and released %v after the last reader's release", time.Since(began))
}
