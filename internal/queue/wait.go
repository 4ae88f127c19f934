package queue

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/ahead"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/internal/watching"
)

// wait is what stands ahead of an entry, as the latest look, or the put, has shown. Nothing can join a queue ahead of
// an entry, so what is free ahead of it stays free.
type wait struct {
	e *entry

	ahead  *mvccpb.KeyValue // the nearest conflicting entry ahead; nil: there is none
	claims []ahead.Claim    // the dead claims between that entry and this one, in the order of their creation
	more   bool             // there are more of them

	lookSent time.Time // when the latest look that read this was sent

	position int64   // number of entries ahead when the entry was put
	permit   *permit // of a semaphore; otherwise nil
}

// isFree reports whether nothing stands ahead.
func (w *wait) isFree() bool {
	if w.permit != nil {
		return w.permit.next.Hold
	}
	return w.e.stage >= placed && w.ahead == nil && len(w.claims) == 0 && !w.more
}

// untilNoEntryAhead waits until no entry is ahead. Dead claims may be.
//
// If an entry of the attempt was deleted by hand, or written to by an administrator, nothing but a look tells it before
// the entry ahead is gone, once in watching.RecheckAfter. That costs the attempt its place and delays no other one:
// those behind watch the entry, and in the other queues of a set they wait as long as behind a set that has lost
// nothing, or RecheckAfter.
func (w *wait) untilNoEntryAhead(ctx context.Context) error {
	if w.permit != nil {
		return w.permit.await(ctx)
	}
	for w.e.stage < placed || w.ahead != nil {
		if ctx.Err() != nil {
			return retry.ContextErr(ctx)
		}
		if w.e.stage < placed {
			if err := w.look(ctx); err != nil {
				return err
			}
			continue
		}
		ahead := w.ahead
		err := watching.Change{
			Host: w.e.q.host, Streams: &w.e.q.shared.streams,
			Key:  string(ahead.Key),
			Opts: []clientv3.OpOption{clientv3.WithFilterPut()},
			Over: func() bool { return w.ahead != ahead },
			Look: w.look,
			Hear: func(ctx context.Context, events []*clientv3.Event) error {
				// Keys are used again, and a member that lags also tells of an earlier entry at this one. A look too
				// many does no harm.
				if len(events) == 0 {
					return nil
				}
				return w.look(ctx)
			},
		}.Await(ctx)
		if err != nil {
			return err
		}
		telemetry.Woken(ctx)
	}
	return nil
}

// describe returns what to add to the error of a call whose context has ended: what it was waiting for, unless that is
// another entry.
func (w *wait) describe(ctx context.Context) string {
	first := "it was first in the queue"
	switch {
	case ctx.Err() == nil:
		return ""
	case w.e.stage < placed:
		return "; etcd has not answered the request to queue"
	case w.ahead != nil || w.permit != nil && len(w.claims) == 0:
		return "" // the place says it
	case w.e.ticket.inSet && !w.isFree():
		first = "it was first in the queue of " + names.Quote(w.e.q.At.Name)
	case w.e.ticket.inSet:
		first = "it was first in all queues"
	}
	if w.isFree() {
		return fmt.Sprintf("; %s, and the session was not connected", first)
	}
	return fmt.Sprintf("; %s, and the lock delay had not passed: the last holder went without a release", first)
}
