package watching

import (
	"cmp"
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

const (
	// RecheckAfter is the time between two looks beside a living watch. It bounds how long a waiter misses what only a
	// look finds, and the harm of a watch that misses a change. No such watch is known.
	RecheckAfter = 30 * time.Second

	// maxPatience bounds by how much a waiter's patience with its watch grows.
	maxPatience = 16
)

// Change says what a waiter waits for, and what it watches meanwhile.
type Change struct {
	Host    lease.Env // the waiter's
	Streams *Streams
	Key     string
	Opts    []clientv3.OpOption

	Recheck time.Duration                   // between two looks beside a living watch; 0: RecheckAfter
	Again   func(ctx context.Context) error // such a look; nil: Look

	Over func() bool                                               // the wait is over
	Look func(ctx context.Context) error                           // reads what no event tells
	Hear func(ctx context.Context, events []*clientv3.Event) error // handles the events of some revisions, or of none
}

// Await watches until the wait is over.
func (c Change) Await(ctx context.Context) error {
	patience := time.Duration(1)
	for {
		err := lease.Retry(ctx, c.Host, func(ctx context.Context) error {
			if c.Over() { // the look after a failed watch has found it
				return nil
			}
			err := c.once(ctx, patience)
			// The member may hang, or be overloaded. A watch made again and again would add to the load, so wait longer
			// each time.
			patience = min(2*patience, maxPatience)
			return err
		})
		if err != nil || c.Over() {
			return err
		}
		// The watch was healthy before it ended, so pause and patience start anew.
		patience = 1
		var pauses lease.Pauses
		if err := pauses.Next(ctx, c.Host, nil); err != nil {
			return err
		}
	}
}

// once watches until the wait is over. It returns nil before that if a healthy watch has ended. patience multiplies the
// times after which it gives up a silent watch.
func (c Change) once(ctx context.Context, patience time.Duration) error {
	st, limit := c.Streams.Pick()
	armed, err := st.Arm(ctx, Request{
		Client: c.Host.Client(), Open: c.Host.Context(), Key: c.Key, Opts: c.Opts, Within: patience * limit, Look: c.Look,
	})
	switch {
	case errors.Is(err, ErrUnarmed) && c.Over():
		return nil
	case err != nil:
		return err
	}
	defer armed.Close()
	telemetry.Armed(ctx)
	return c.listen(ctx, armed, patience*AnswerWithin)
}

// listen looks once, and then handles what the watch tells. It gives up the watch after a request for progress without
// any answer for so long. It returns like once.
func (c Change) listen(ctx context.Context, armed *Watch, answer time.Duration) error {
	if err := c.Look(ctx); err != nil || c.Over() {
		return err
	}
	recheck := cmp.Or(c.Recheck, RecheckAfter)
	if c.Again == nil {
		c.Again = c.Look
	}
	timer := time.NewTimer(min(ProgressAfter, recheck))
	defer timer.Stop()
	for heard, read := time.Now(), time.Now(); ; {
		news, err := armed.Next(ctx, timer.C)
		silent := time.Since(heard)
		ask := ProgressAfter - silent // the time until that
		switch {
		case errors.Is(err, ErrTick) && silent >= ProgressAfter+answer:
			return armed.GiveUp("the watch is on a member that does not answer")
		case errors.Is(err, ErrTick) && ask <= 0:
			armed.AskProgress()
			ask = AskAgain
		case errors.Is(err, ErrTick): // it is time to look
		case err != nil:
			return armed.Ended(ctx, err)
		default: // any response is progress
			heard, ask = time.Now(), ProgressAfter
			if err := c.Hear(ctx, news.Events); err != nil || c.Over() {
				return err
			}
		}
		if time.Since(read) >= recheck {
			if err := c.Again(ctx); err != nil || c.Over() {
				return err
			}
			read = time.Now()
		}
		timer.Reset(min(ask, recheck-time.Since(read)))
	}
}
