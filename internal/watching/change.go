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
	// RecheckAfter is the time between two looks beside a watch that lives. It bounds the harm of one that has still
	// missed a change. No such watch is known. It also bounds how long a waiter does not know what only its look finds.
	RecheckAfter = 30 * time.Second

	// maxPatience bounds by how much a waiter's patience with its watch grows.
	maxPatience = 16
)

// Change is what a waiter waits for, and what it watches for that.
type Change struct {
	Host    lease.Env // the waiter's
	Streams *Streams
	Key     string
	Opts    []clientv3.OpOption

	Recheck time.Duration // between two looks beside a watch that lives; 0: RecheckAfter

	Over func() bool                                               // the wait is over
	Look func(ctx context.Context) error                           // reads what no event tells
	Told func(revision int64)                                      // the store has reached it; may be nil
	Hear func(ctx context.Context, events []*clientv3.Event) error // handles the events of some revisions, or of none
}

// Await watches until the wait is over.
func (c Change) Await(ctx context.Context) error {
	patience := time.Duration(1)
	for {
		err := lease.Retry(ctx, c.Host, func(ctx context.Context) error {
			if c.Over() { // found by the look after a watch that failed
				return nil
			}
			err := c.once(ctx, patience)
			// The member may hang, or it may be overloaded. Watches that are made
			// again and again would add to the load, so wait longer each time.
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

// once watches until the wait is over. It returns nil before that if a healthy watch
// ended. patience multiplies the times after which a silent watch is given up.
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

// listen looks once, and then handles what a watch that stands tells, until it was asked for progress and has answered
// nothing for that long. It returns as once does.
func (c Change) listen(ctx context.Context, armed *Watch, answer time.Duration) error {
	if err := c.Look(ctx); err != nil || c.Over() {
		return err
	}
	recheck := cmp.Or(c.Recheck, RecheckAfter)
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
		case errors.Is(err, ErrTick): // time to look
		case err != nil:
			return armed.Ended(ctx, err)
		default: // progress, which any response is
			heard, ask = time.Now(), ProgressAfter
			if c.Told != nil {
				c.Told(news.Header.Revision)
			}
			if err := c.Hear(ctx, news.Events); err != nil || c.Over() {
				return err
			}
		}
		if time.Since(read) >= recheck {
			if err := c.Look(ctx); err != nil || c.Over() {
				return err
			}
			read = time.Now()
		}
		timer.Reset(min(ask, recheck-time.Since(read)))
	}
}
