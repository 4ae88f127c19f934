package locker_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

// Invariant 15.
func TestDoReleasesOnlyAfterTheWorkHasReturned(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	mu := locker.NewMutex(open(t, srv.Client(t), session.Options{}), "x")
	ctx, cancel := context.WithCancel(deadline(t))
	err := mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
		cancel() // the work continues after its caller has given up
		<-ctx.Done()
		if kvs := entries(t, srv, "x"); len(kvs) != 1 || lk.Check() != nil {
			t.Errorf("released while the work is running: %v, %v", kvs, lk.Check())
		}
		return context.Cause(ctx)
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if kvs := entries(t, srv, "x"); len(kvs) != 0 {
		t.Errorf("still held after Do returned: %v", kvs)
	}
}

func TestDoReleasesBeforePropagatingAPanic(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	mu := locker.NewMutex(open(t, srv.Client(t), session.Options{}), "x")
	func() {
		defer func() {
			if p := recover(); p != "bug in user code" {
				t.Errorf("recovered %v", p)
			}
			if kvs := entries(t, srv, "x"); len(kvs) != 0 {
				t.Errorf("still held when the panic reaches the caller: %v", kvs)
			}
		}()
		_ = mu.Do(deadline(t), func(context.Context, *locker.Lock) error { panic("bug in user code") })
	}()
	done := make(chan struct{})
	go func() { // ends with Goexit, as t.FailNow does
		defer close(done)
		_ = mu.Do(deadline(t), func(context.Context, *locker.Lock) error { runtime.Goexit(); return nil })
	}()
	<-done
	if kvs := entries(t, srv, "x"); len(kvs) != 0 {
		t.Errorf("still held after Goexit: %v", kvs)
	}
}

func TestDoContextCarriesTheHolderAndEndsWithTheRelease(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	mu := locker.NewMutex(open(t, srv.Client(t), session.Options{}), "x")
	type key struct{}
	var kept context.Context
	err := mu.Do(context.WithValue(deadline(t), key{}, "value"), func(ctx context.Context, lk *locker.Lock) error {
		kept = ctx
		if h, ok := fencing.FromContext(ctx); !ok || h != fencing.Holder(lk) || ctx.Value(key{}) != "value" {
			t.Errorf("holder %v, value %v", h, ctx.Value(key{}))
		}
		return nil
	})
	if err != nil || kept.Err() == nil {
		t.Errorf("err %v, context %v", err, kept.Err())
	}
}

func TestDoReportsALossTheWorkIgnored(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{})
	mu := locker.NewMutex(sess, "x")
	lose := func(ctx context.Context, lk *locker.Lock) {
		srv.Revoke(t, lk.Lease())
		<-ctx.Done()
	}
	var lost *holdfast.LostError
	err := mu.Do(deadline(t), func(ctx context.Context, lk *locker.Lock) error { lose(ctx, lk); return nil })
	if !errors.As(err, &lost) || lost.Name != "x" {
		t.Errorf("work that returned nil: %v", err)
	}
	own := errors.New("error of the work")
	err = mu.Do(deadline(t), func(ctx context.Context, lk *locker.Lock) error { lose(ctx, lk); return own })
	if !errors.As(err, &lost) || !errors.Is(err, own) {
		t.Errorf("work that failed: %v", err)
	}
	err = mu.Do(deadline(t), func(ctx context.Context, lk *locker.Lock) error { lose(ctx, lk); return context.Cause(ctx) })
	if found, ok := err.(*holdfast.LostError); !ok || found.Name != "x" { // not joined with itself
		t.Errorf("work that returned the cause of its context: %v", err)
	}
}

func TestDoSucceedsWhenOnlyTheReleaseIsUnconfirmed(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	sess := open(t, link.Client(), session.Options{TTL: 60 * time.Second, CloseTimeout: 200 * time.Millisecond})
	ctx, cancel := context.WithCancel(deadline(t))
	err := locker.NewMutex(sess, "x").Do(ctx, func(context.Context, *locker.Lock) error {
		link.BlackHole()
		cancel()
		return nil
	})
	if err != nil {
		t.Errorf("Do: %v", err)
	}
	link.Heal()
	srv.WaitForKeys(t, "holdfast/lock/x/@/", 0)
}

func TestDoReturnsAnAcquireErrorWithoutRunningTheWork(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{})
	other := open(t, srv.Client(t), session.Options{})
	if _, err := locker.NewMutex(other, "x").Lock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	ran := false
	err := locker.NewMutex(sess, "x").Do(soon(t, 50*time.Millisecond),
		func(context.Context, *locker.Lock) error { ran = true; return nil })
	var ae *view.AcquireError
	if !errors.As(err, &ae) || !errors.Is(err, context.DeadlineExceeded) || ran {
		t.Errorf("%v, ran %v", err, ran)
	}
}
