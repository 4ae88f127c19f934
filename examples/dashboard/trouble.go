package main

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/locker"
)

// trouble is what happens to a worker, and for how long.
type trouble struct {
	what string
	to   func(ctx context.Context, d *demo.Demo, w *worker, lasts time.Duration) error
}

// troubles are made one after the other, each to the next worker.
var troubles = []trouble{
	{"is cut off from etcd until its session is suspended", suspended},
	{"is cut off from etcd until its lease is lost, and for longer", expired},
	{"holds a lock for long, while others wait", waitedFor},
	{"holds a lock, and an administrator kicks it", kicked},
	{"holds a lock, and its entry is deleted by hand", deleted},
	{"holds a lock, and its lease is revoked", revoked},
	{"holds a lock for longer than MaxHold", overran},
	{"acquires a lock, and gets no reply from etcd", unanswered},
	{"holds a lock, and its role loses its permissions", denied},
}

func suspended(ctx context.Context, _ *demo.Demo, w *worker, _ time.Duration) error {
	w.network.setCut(true)
	err := w.await(ctx, holdfast.Suspended, holdfast.Lost)
	w.network.setCut(false)
	return errors.Join(err, w.await(ctx, holdfast.Connected))
}

func expired(ctx context.Context, _ *demo.Demo, w *worker, lasts time.Duration) error {
	err := w.holds(ctx, locker.Options{}, func(*locker.Lock) error { w.network.setCut(true); return nil })
	err = errors.Join(err, w.await(ctx, holdfast.Lost), pause(ctx, 5*lasts))
	w.network.setCut(false)
	return errors.Join(err, w.await(ctx, holdfast.Connected))
}

func waitedFor(ctx context.Context, _ *demo.Demo, w *worker, lasts time.Duration) error {
	lk, err := w.mutex("busy").Lock(ctx)
	if err != nil {
		return err
	}
	var waiters errgroup.Group
	for range 5 {
		waiters.Go(func() error {
			return w.mutex("busy").Do(ctx, func(context.Context, *locker.Lock) error { return nil })
		})
	}
	waiters.Go(func() error {
		brief, cancel := context.WithTimeout(ctx, lasts/2)
		defer cancel()
		_, err := w.mutex("busy").Lock(brief) // gives up
		if !errors.Is(err, context.DeadlineExceeded) {
			return errors.Join(err, ctx.Err())
		}
		return nil
	})
	return errors.Join(pause(ctx, lasts), unlessLost(lk.Unlock(ctx)), waiters.Wait())
}

func kicked(ctx context.Context, d *demo.Demo, w *worker, _ time.Duration) error {
	adm := admin.New(d.Client, admin.Options{
		Owner: "the dashboard example", Auditor: audit.Func(func(context.Context, audit.Record) {}), // default: logged
	})
	return w.holds(ctx, locker.Options{}, func(lk *locker.Lock) error {
		return adm.Kick(ctx, holdfast.KindLock, lk.Name(), lk.Token(), "to see it on the dashboard")
	})
}

func deleted(ctx context.Context, d *demo.Demo, w *worker, _ time.Duration) error {
	return w.holds(ctx, locker.Options{}, func(lk *locker.Lock) error {
		_, err := d.Client.Delete(ctx, lk.Key())
		return err
	})
}

func revoked(ctx context.Context, d *demo.Demo, w *worker, _ time.Duration) error {
	err := w.holds(ctx, locker.Options{}, func(lk *locker.Lock) error {
		_, err := d.Client.Revoke(ctx, lk.Lease())
		return err
	})
	return errors.Join(err, w.await(ctx, holdfast.Connected))
}

func overran(ctx context.Context, _ *demo.Demo, w *worker, lasts time.Duration) error {
	return w.holds(ctx, locker.Options{MaxHold: lasts + 100*time.Millisecond}, nil)
}

func unanswered(ctx context.Context, _ *demo.Demo, w *worker, _ time.Duration) error {
	w.network.losesNext.Store(true) // the lock's, or that of another request of this worker
	lk, err := w.mutex("unanswered").Lock(ctx)
	if err != nil {
		return err
	}
	return unlessLost(lk.Unlock(ctx))
}

func denied(ctx context.Context, d *demo.Demo, w *worker, lasts time.Duration) error {
	lk, err := w.mutex("denied").Lock(ctx)
	if err != nil {
		return err
	}
	const unanswered = "holdfast_polls_unanswered_total"
	before := w.total(unanswered)
	w.network.denied.Store(true)
	for err == nil && w.total(unanswered) == before { // whether the entry still stands is asked twice in a second
		err = pause(ctx, 50*time.Millisecond)
	}
	_, lockErr := w.mutex("denied/other").Lock(ctx)
	err = errors.Join(err, pause(ctx, lasts))
	unlockErr := lk.Unlock(ctx) // the session tries again each second
	w.network.denied.Store(false)
	if lockErr == nil || unlockErr == nil {
		return errors.New("etcd has not refused the worker's requests")
	}
	return errors.Join(err, d.WaitForKeys(ctx, lk.Key(), 0))
}

// holds acquires a lock, lets something happen to it, and waits until the lock is lost.
func (w *worker) holds(ctx context.Context, o locker.Options, happens func(*locker.Lock) error) error {
	lk, err := w.mutex("trouble").With(o).Lock(ctx)
	if err != nil {
		return err
	}
	defer lk.Unlock(ctx)
	if happens != nil {
		if err := happens(lk); err != nil && !errors.Is(lk.Check(), holdfast.ErrLost) {
			return err
		}
	}
	select {
	case <-lk.Done():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// unlessLost returns err, or nil for a lost lock: on a busy machine a session with a short TTL may be lost by itself.
func unlessLost(err error) error {
	if errors.Is(err, holdfast.ErrLost) {
		return nil
	}
	return err
}
