package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// contender acquires the lock or leadership that all contenders of a side compete for, and returns the function that
// releases it.
type contender func(ctx context.Context) (release func(context.Context) error, err error)

// relay makes contenders release on demand: each acquires, reports that on held, waits for the baton, and releases.
type relay struct {
	e           *env
	held, baton chan struct{}
}

func newRelay(e *env) *relay {
	return &relay{e: e, held: make(chan struct{}), baton: make(chan struct{})}
}

// turn runs one acquisition and release. It returns false when the side ends.
func (c *relay) turn(acquire contender) (more bool, err error) {
	release, err := acquire(c.e.ctx)
	if err == nil {
		_ = errors.Join(c.e.send(c.held), c.e.receive(c.baton))
		err = release(c.e.ctx) // even when the side ends: other contenders may wait without a context
	}
	if c.e.ctx.Err() != nil {
		return false, nil
	}
	return err == nil, err
}

// next runs one hand-over, from the holder's call of release until the next contender holds.
func (c *relay) next(timer) error {
	return errors.Join(c.e.send(c.baton), c.e.receive(c.held))
}

// takeTurns makes every contender acquire again as soon as it has released. One operation is one hand-over.
func takeTurns(e *env, all []contender) (op, error) {
	c := newRelay(e)
	for _, acquire := range all {
		e.spawn(func() error {
			for {
				if more, err := c.turn(acquire); !more {
					return err
				}
			}
		})
	}
	// One turn for each contender. After a pause between rounds all have waited unusually long; this restores the steady
	// state.
	e.prepare = func() error {
		for range all {
			if err := c.next(nil); err != nil {
				return err
			}
		}
		return nil
	}
	return c.next, e.receive(c.held)
}

// settling returns the pause after n contenders have queued. When their entries exist they still set up their watches,
// and etcd serves upstream's from history at first; neither can be observed from outside.
func settling(n int) time.Duration {
	return 200*time.Millisecond + time.Duration(n)*3*time.Millisecond
}

// drainQueue keeps contenders that have released out of the queue until it is refilled, which is not timed. One
// operation is one hand-over to a waiter that has been idle in the queue for a long time. All are ahead of the crowd.
func drainQueue(e *env, all []contender, behind crowd) (op, error) {
	cli, err := e.client(0)
	if err != nil {
		return nil, err
	}
	c, join, queued := newRelay(e), make(chan struct{}), 0
	for _, acquire := range all {
		e.spawn(func() error {
			for e.receive(join) == nil {
				if more, err := c.turn(acquire); !more {
					return err
				}
			}
			return nil
		})
	}
	e.prepare = func() error {
		missing := len(all) - queued
		if err := behind.leave(e.ctx, cli); err != nil {
			return err
		}
		for ; queued < len(all); queued++ {
			if err := e.send(join); err != nil {
				return err
			}
		}
		err := e.awaitKeys(cli, behind.prefix, len(all))
		if err == nil {
			err = behind.join(e.ctx, cli)
		}
		time.Sleep(settling(missing))
		return err
	}
	return func(t timer) error {
		if queued < len(all)/2 {
			t.StopTimer()
			if err := e.prepare(); err != nil {
				return err
			}
			t.StartTimer()
		}
		queued--
		return c.next(t)
	}, errors.Join(e.prepare(), e.receive(c.held))
}

// concurrently returns an operation that runs do on n goroutines at once.
func concurrently(n int, do func(i int) error) op {
	return func(timer) error {
		errs := make([]error, n)
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() { errs[i] = do(i) })
		}
		all.Wait()
		return errors.Join(errs...)
	}
}
