package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/etcdtest"
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
	return cutOffHolders(ctx, l, func(name string, cutOff, cli *clientv3.Client) (h holder, err error) {
		first, err := upstream(cutOff, 2)
		if err != nil {
			return h, err
		}
		second, err := upstream(cli, 60)
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
	return cutOffHolders(ctx, l, func(name string, cutOff, cli *clientv3.Client) (h holder, err error) {
		first, err := l.open(ctx, cutOff, session.Options{TTL: 2 * time.Second})
		if err != nil {
			return h, err
		}
		second, err := l.open(ctx, cli, session.Options{})
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

// cutOffHolders cuts off holders at different times. The outcome is that of the one that was told last, compared with
// when the next one held.
func cutOffHolders(
	ctx context.Context, l *lab, start func(name string, cutOff, cli *clientv3.Client) (holder, error),
) (outcome, error) {
	links := make([]*etcdtest.Link, cutOffs)
	holders := make([]holder, cutOffs)
	next := make([]<-chan returned, cutOffs)
	err := each(func(i int) error {
		link, cutOff, err := l.link()
		if err != nil {
			return err
		}
		cli, err := l.client()
		if err != nil {
			return err
		}
		link.Delay(oneWay)
		if holders[i], err = start(fmt.Sprintf("x%d", i), cutOff, cli); err != nil {
			return err
		}
		links[i], next[i] = link, in(holders[i].lock)
		_, err = keys(ctx, cli, holders[i].prefix, 2)
		return err
	})
	if err != nil {
		return outcome{}, err
	}
	err = each(func(i int) error {
		defer links[i].BlackHole()
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
