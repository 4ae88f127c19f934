package main

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// A model of a lock whose lease is kept alive on the context of the caller that acquired it, which ends before the work
// does.
func expiresInWork(ctx context.Context, l *lab) (outcome, error) {
	lock := func(ctx context.Context) (acquired bool, err error) {
		lease, err := l.cli.Grant(ctx, 2)
		if err != nil {
			return false, err
		}
		free := clientv3.Compare(clientv3.CreateRevision("x"), "=", 0)
		resp, err := l.cli.Txn(ctx).If(free).Then(clientv3.OpPut("x", "", clientv3.WithLease(lease.ID))).Commit()
		if err != nil {
			return false, err
		}
		alive, err := l.cli.KeepAlive(ctx, lease.ID)
		go func() { // ends with the context
			for range alive {
			}
		}()
		return resp.Succeeded, err
	}
	caller, returns := context.WithCancel(ctx)
	defer returns()
	if _, err := lock(caller); err != nil {
		return outcome{}, err
	}
	began := time.Now()
	returns()
	for time.Since(began) < longWork {
		acquired, err := lock(ctx)
		if err != nil {
			return outcome{}, err
		}
		if acquired {
			return failedWith("another acquired the lock %v into the work, and nothing told the worker", ms(time.Since(began)))
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return outcome{}, err
		}
	}
	return heldWith("no other acquired the lock for %v", longWork)
}

// longWork is some TTLs.
const longWork = 5 * time.Second

func expiresInWorkHere(ctx context.Context, l *lab) (outcome, error) {
	first, second, err := l.sessions(ctx, 2*time.Second, 2*time.Second)
	if err != nil {
		return outcome{}, err
	}
	caller, returns := context.WithCancel(ctx)
	defer returns()
	lk, err := locker.NewMutex(first, "x").Lock(caller)
	if err != nil {
		return outcome{}, err
	}
	began := time.Now()
	returns()
	for time.Since(began) < longWork {
		_, err := locker.NewMutex(second, "x").TryLock(ctx)
		lost := lk.Check()
		switch {
		case err == nil && lost == nil:
			return failedWith("another acquired the lock %v into the work, and nothing told the worker", ms(time.Since(began)))
		case err == nil, errors.Is(lost, holdfast.ErrLost): // a busy machine
			return heldWith("the lock was lost after %v, and the worker was told: %v", ms(time.Since(began)), lost)
		case !errors.Is(err, locker.ErrLocked):
			return outcome{}, err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return outcome{}, err
		}
	}
	return heldWith("no other acquired the lock for %v; the session renewed its lease", longWork)
}

// A lease is revoked although its client renews it. A revocation by hand stands for that of a resumed leader.
func revokedUnderItsHolder(ctx context.Context, l *lab) (outcome, error) {
	first, err := upstream(l.cli, 15)
	if err != nil {
		return outcome{}, err
	}
	second, err := upstream(l.cli, 15)
	if err != nil {
		return outcome{}, err
	}
	if err := concurrency.NewMutex(first, "x").Lock(ctx); err != nil {
		return outcome{}, err
	}
	next := in(func() error { return concurrency.NewMutex(second, "x").Lock(ctx) })
	if err := l.keys(ctx, "x/", 2); err != nil {
		return outcome{}, err
	}
	told := in(func() error { <-first.Done(); return nil })
	if _, err := l.cli.Revoke(ctx, first.Lease()); err != nil {
		return outcome{}, err
	}
	return toldBefore(<-told, <-next)
}

func revokedUnderItsHolderHere(ctx context.Context, l *lab) (outcome, error) {
	first, second, err := l.sessions(ctx, session.DefaultTTL, session.DefaultTTL)
	if err != nil {
		return outcome{}, err
	}
	lk, err := locker.NewMutex(first, "x").Lock(ctx)
	if err != nil {
		return outcome{}, err
	}
	next := in(func() error { _, err := locker.NewMutex(second, "x").Lock(ctx); return err })
	if err := l.keys(ctx, "holdfast/lock/x/@/", 2); err != nil {
		return outcome{}, err
	}
	told := in(func() error { <-lk.Done(); return nil })
	if _, err := l.cli.Revoke(ctx, first.Lease()); err != nil {
		return outcome{}, err
	}
	return toldBefore(<-told, <-next)
}

// toldBefore compares when a holder was told that it holds no more with when the next one held.
func toldBefore(told, next returned) (outcome, error) {
	if next.err != nil {
		return outcome{}, next.err
	}
	if late := told.at.Sub(next.at); late > 0 {
		return failedWith("two held for %v: so much later than the next one held was the holder told", ms(late))
	}
	return heldWith("the holder was told %v before the next one held", ms(next.at.Sub(told.at)))
}

// Two goroutines lock one name on one session.
func twoGoroutines(ctx context.Context, l *lab) (outcome, error) {
	sess, err := upstream(l.cli, 60)
	if err != nil {
		return outcome{}, err
	}
	if err := concurrency.NewMutex(sess, "x").Lock(ctx); err != nil {
		return outcome{}, err
	}
	within, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := concurrency.NewMutex(sess, "x").Lock(within); err != nil {
		return heldWith("the second Lock waited")
	}
	return failedWith("Lock returned nil to both goroutines")
}

func twoGoroutinesHere(ctx context.Context, l *lab) (outcome, error) {
	sess, err := l.open(ctx, l.cli, session.DefaultTTL)
	if err != nil {
		return outcome{}, err
	}
	if _, err := locker.NewMutex(sess, "x").Lock(ctx); err != nil {
		return outcome{}, err
	}
	switch _, err := locker.NewMutex(sess, "x").TryLock(ctx); {
	case err == nil:
		return failedWith("Lock and TryLock returned nil")
	case !errors.Is(err, locker.ErrLocked):
		return outcome{}, err
	}
	within, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := locker.NewMutex(sess, "x").Lock(within); err == nil {
		return failedWith("Lock returned nil to both goroutines")
	}
	return heldWith("TryLock was refused, and Lock waited")
}
