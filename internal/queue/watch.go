package queue

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/calls"
	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/internal/watching"
)

const (
	// recheckAfter bounds the harm of a watch that lives and has still missed a
	// deletion. No such watch is known. It also bounds how long a waiting attempt
	// does not know that an entry of its own was deleted by hand, or written to by
	// an administrator. Nothing else tells it before the entry ahead goes. That
	// costs the attempt its place and delays no other one: those behind watch the
	// entry, and in the other queues of a set they wait as long as behind a set that
	// has lost nothing, or recheckAfter.
	recheckAfter = 30 * time.Second

	// maxPatience bounds by how much a waiter's patience with its watch grows.
	maxPatience = 16
)

// watched is what a waiter watches.
type watched struct {
	key  string
	opts []clientv3.OpOption

	over func() bool                                               // the wait is over
	look func(ctx context.Context) error                           // reads what no event tells
	told func(revision int64)                                      // the store has reached it; may be nil
	hear func(ctx context.Context, events []*clientv3.Event) error // handles the events of one or more revisions
}

// await watches until the wait is over.
func (w watched) await(ctx context.Context, q *Queue) error {
	patience := time.Duration(1)
	for {
		err := calls.Retry(ctx, q.host, func(ctx context.Context) error {
			if w.over() { // found by the look after a watch that failed
				return nil
			}
			err := w.once(ctx, q, patience)
			// The member may hang, or it may be overloaded. Watches that are made
			// again and again would add to the load, so wait longer each time.
			patience = min(2*patience, maxPatience)
			return err
		})
		if err != nil || w.over() {
			return err
		}
		// The watch was healthy before it ended, so pause and patience start anew.
		patience = 1
		var pauses calls.Pauses
		if err := pauses.Next(ctx, q.host, nil); err != nil {
			return err
		}
	}
}

// once watches until the wait is over. It returns nil before that if a healthy watch
// ended. patience multiplies the times after which a silent watch is given up.
func (w watched) once(ctx context.Context, q *Queue, patience time.Duration) error {
	st, limit := q.shared.streams.Pick()
	armed, err := st.Arm(ctx, watching.Request{
		Client: q.host.Client(), Open: q.host.Context(), Key: w.key, Opts: w.opts, Within: patience * limit, Look: w.look,
	})
	switch {
	case errors.Is(err, watching.ErrUnarmed) && w.over():
		return nil
	case err != nil:
		return err
	}
	defer armed.Close()
	telemetry.Armed(ctx)
	return w.listen(ctx, armed, patience*watching.SilentAfter)
}

// listen looks once, and then handles what a watch that stands tells, until it was silent for that long. It returns as
// once does.
func (w watched) listen(ctx context.Context, armed *watching.Watch, silence time.Duration) error {
	if err := w.look(ctx); err != nil || w.over() {
		return err
	}
	tick := time.NewTicker(watching.ProgressEvery)
	defer tick.Stop()
	for heard, read := time.Now(), time.Now(); ; {
		news, err := armed.Next(ctx, tick.C)
		switch {
		case errors.Is(err, watching.ErrTick) && time.Since(heard) >= silence:
			return armed.GiveUp("the watch is on a member that does not answer")
		case errors.Is(err, watching.ErrTick):
			armed.AskProgress()
		case err != nil && ctx.Err() == nil && armed.Healthy():
			return nil
		case err != nil:
			return backoff.Again(err)
		default: // progress, which any response is
			heard = time.Now()
			if w.told != nil {
				w.told(news.Header.Revision)
			}
		}
		if len(news.Events) > 0 {
			if err := w.hear(ctx, news.Events); err != nil || w.over() {
				return err
			}
		}
		if time.Since(read) >= recheckAfter {
			if err := w.look(ctx); err != nil || w.over() {
				return err
			}
			read = time.Now()
		}
	}
}
