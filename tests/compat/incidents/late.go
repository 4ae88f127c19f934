package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

const (
	// cutOffs is how many holders are cut off side by side: how late one is told depends on when it has renewed.
	cutOffs = 8
	// oneWay is how long a message takes between a holder and etcd.
	oneWay = 100 * time.Millisecond
)

// A holder is one that will be cut off.
type holder struct {
	told   <-chan returned // that it holds no more
	prefix string          // of the keys of its lock
	lock   func() error    // by another client, whose connection works
}

// Holders at some distance are cut off, and others wait for their locks.
func toldLate(ctx context.Context, l *lab) (outcome, error) {
	return cutOffHolders(ctx, l, func(own *lab, name string) (h holder, err error) {
		first, second, err := own.upstreams(2, 60)
		if err != nil {
			return h, err
		}
		err = concurrency.NewMutex(first, name).Lock(ctx)
		h.told = in(func() error { <-first.Done(); return nil })
		h.prefix, h.lock = name+"/", func() error { return concurrency.NewMutex(second, name).Lock(ctx) }
		return h, err
	})
}

func toldLateHere(ctx context.Context, l *lab) (outcome, error) {
	return cutOffHolders(ctx, l, func(own *lab, name string) (h holder, err error) {
		first, second, err := own.sessions(ctx, 2*time.Second, session.DefaultTTL)
		if err != nil {
			return h, err
		}
		lk, err := locker.NewMutex(first, name).Lock(ctx)
		if err != nil {
			return h, err
		}
		h.told = in(func() error { <-lk.Done(); return nil })
		h.prefix = "holdfast/lock/" + name + "/@/"
		h.lock = func() error { _, err := locker.NewMutex(second, name).Lock(ctx); return err }
		return h, nil
	})
}

// cutOffHolders cuts off holders at different times, each in a lab of its own. The outcome is that of the one that was
// told last, compared with when the next one held.
func cutOffHolders(
	ctx context.Context, l *lab, start func(own *lab, name string) (holder, error),
) (outcome, error) {
	labs := make([]*lab, cutOffs)
	for i := range labs {
		own, err := l.another()
		if err != nil {
			return outcome{}, err
		}
		own.link.Delay(oneWay)
		labs[i] = own
	}
	holders := make([]holder, cutOffs)
	next := make([]<-chan returned, cutOffs)
	err := each(func(i int) (err error) {
		if holders[i], err = start(labs[i], fmt.Sprintf("x%d", i)); err != nil {
			return err
		}
		next[i] = in(holders[i].lock)
		return labs[i].keys(ctx, holders[i].prefix, 2)
	})
	if err != nil {
		return outcome{}, err
	}
	err = each(func(i int) error {
		defer labs[i].link.BlackHole()
		return pause(ctx, time.Duration(i)*time.Second/cutOffs)
	})
	if err != nil {
		return outcome{}, err
	}
	late, worst := 0, -time.Hour
	for i, h := range holders {
		told, held := <-h.told, <-next[i]
		if held.err != nil {
			return outcome{}, held.err
		}
		by := told.at.Sub(held.at)
		if by > 0 {
			late++
		}
		worst = max(worst, by)
	}
	if late > 0 {
		return failedWith("two held: %d of %d holders were told after the next one held, %v after it at most", late, cutOffs,
			ms(worst))
	}
	return heldWith("all %d holders were told before the next one held, %v before it at least", cutOffs, ms(-worst))
}

// each calls f for each holder, side by side.
func each(f func(i int) error) error {
	var all sync.WaitGroup
	errs := make([]error, cutOffs)
	for i := range cutOffs {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}
