package locker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

// How many are ahead depends on what etcd filters, counts and sorts, and on what a Txn reads after its own deletion.
func TestPlaceIsToldOfAQueueInEtcd(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	var mutexes []*locker.Mutex
	for _, owner := range []string{"a", "b", "c", "d"} {
		sess := open(t, srv.Client(t), session.Options{Owner: owner})
		mutexes = append(mutexes, locker.NewMutex(sess, "x"))
	}
	held := mustLock(t, mutexes[0])
	ctx, cancel := context.WithCancel(deadline(t))
	var waiters []<-chan result
	told := make(chan view.Place, 10)
	for i, mu := range mutexes[1:] {
		if i == 1 {
			mu = mu.With(locker.Options{OnWait: func(p view.Place) { told <- p }})
		}
		waiters = append(waiters, lockLater(ctx, mu))
		srv.WaitForKeys(t, "holdfast/lock/x/@/", i+2)
	}
	expect := func(what string, p view.Place, ahead int) {
		t.Helper()
		if p.Holder.Key != held.Key() || p.Holder.Owner != "a" || p.Holder.Token != held.Token() ||
			p.Holder.Lease != held.Lease() || p.Ahead != ahead {
			t.Errorf("%s: %+v, want %d ahead", what, p, ahead)
		}
	}
	select {
	case p := <-told:
		expect("OnWait", p, 2)
	case <-deadline(t).Done():
		t.Error("OnWait was not called")
	}
	var failed *view.AcquireError
	_, err := locker.NewMutex(open(t, srv.Client(t), session.Options{}), "x").TryLock(deadline(t))
	if !errors.As(err, &failed) {
		t.Fatal(err)
	}
	expect("TryLock", failed.Place, 4)
	mu := locker.NewMutex(open(t, srv.Client(t), session.Options{}), "x")
	for known, limit := false, deadline(t); !known; { // if etcd answers too late, the error does not have all of it
		_, err = mu.Lock(soon(t, 300*time.Millisecond))
		if !errors.As(err, &failed) || !errors.Is(err, context.DeadlineExceeded) || limit.Err() != nil {
			t.Fatal(err)
		}
		known = failed.Place.Holder.Key != ""
	}
	expect("Lock", failed.Place, 4)
	cancel()
	for _, w := range waiters {
		if r := <-w; r.err == nil {
			t.Error("a waiter holds")
		}
	}
	if err := held.Unlock(deadline(t)); err != nil {
		t.Error(err)
	}
}
