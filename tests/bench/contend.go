package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// contender acquires what all contenders of a side want, and returns how to
// give it back.
type contender func(ctx context.Context) (release func(context.Context) error, err error)

// crowd is contenders that hold one after the other: each, when it has
// acquired, waits for the baton, and gives back when it has got it.
type crowd struct {
	e           *env
	held, baton chan struct{}
}

func newCrowd(e *env) *crowd {
	return &crowd{e: e, held: make(chan struct{}), baton: make(chan struct{})}
}

// turn is one contender's from its call to its release. false: the side ends.
func (c *crowd) turn(acquire contender) (more bool, err error) {
	release, err := acquire(c.e.ctx)
	if err == nil {
		_ = errors.Join(c.e.give(c.held), c.e.take(c.baton))
		err = release(c.e.ctx) // also when the side ends: others may wait for it in a way that cannot be cancelled
	}
	if c.e.ctx.Err() != nil {
		return false, nil
	}
	return err == nil, err
}

// next is one hand-over: from the call of the holder's release to the moment at
// which the next one holds.
func (c *crowd) next(timer) error {
	return errors.Join(c.e.give(c.baton), c.e.take(c.held))
}

// takeTurns has all contenders want it again as soon as they have given it
// back. One operation is one hand-over.
func takeTurns(e *env, all []contender) (op, error) {
	c := newCrowd(e)
	for _, acquire := range all {
		e.spawn(func() error {
			for {
				if more, err := c.turn(acquire); !more {
					return err
				}
			}
		})
	}
	// A turn for everybody: after a pause all have waited for long, as they
	// have not while all is in motion.
	e.prepare = func() error {
		for range all {
			if err := c.next(nil); err != nil {
				return err
			}
		}
		return nil
	}
	return c.next, e.take(c.held)
}

// settling is how long a queue that n have joined is left alone. What waiters
// still do after their entries stand (watch, and upstream's are served from the
// past at first) cannot be seen from outside.
func settling(n int) time.Duration {
	return 200*time.Millisecond + time.Duration(n)*3*time.Millisecond
}

// drain has contenders that have given it back stay away until the queue is
// filled up again, off the clock. One operation is one hand-over, in a queue
// that stands: by the time its turn comes, each has waited for long.
func drain(e *env, all []contender, prefix string) (op, error) {
	cli, err := e.client(0)
	if err != nil {
		return nil, err
	}
	c, join, queued := newCrowd(e), make(chan struct{}), 0
	for _, acquire := range all {
		e.spawn(func() error {
			for e.take(join) == nil {
				if more, err := c.turn(acquire); !more {
					return err
				}
			}
			return nil
		})
	}
	e.prepare = func() error {
		missing := len(all) - queued
		for ; queued < len(all); queued++ {
			if err := e.give(join); err != nil {
				return err
			}
		}
		err := e.awaitKeys(cli, prefix, len(all))
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
	}, errors.Join(e.prepare(), e.take(c.held))
}

// together is n goroutines that do the same at once, each on its own.
func together(n int, do func(i int) error) op {
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
