package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/awaiting"
	"github.com/holdfast-go/holdfast/internal/calls"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/reads"
	"github.com/holdfast-go/holdfast/internal/sending"
	"github.com/holdfast-go/holdfast/internal/steps"
	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// wait is what an entry knows of those ahead of it: which must go before it may hold, and whether the lock delay must
// pass then. e.mu protects ahead, seen and delay.
type wait struct {
	e *entry

	ahead  *mvccpb.KeyValue // the nearest entry ahead; nil if the queue is free
	seen   int64            // the latest revision at which ahead stood
	delay  delay
	looked int64 // the revision of the latest read of the entry, for who observes

	position int64          // number of entries ahead when the entry was put
	others   reads.Sessions // of the other mode
	permit   *permit        // of a semaphore; otherwise nil
}

// delay is the lock delay of an entry, which must pass before it may hold. In the zero delay none has begun.
type delay struct{ until time.Time }

// delayOf returns a delay that begins now.
func delayOf(d time.Duration) delay { return delay{time.Now().Add(d)} }

// begun reports whether it has begun, and nothing has ended it. That its time has passed is not its end: see
// wait.endDelay.
func (d delay) begun() bool { return !d.until.IsZero() }

// left is the rest of its time.
func (d delay) left() time.Duration {
	if !d.begun() {
		return 0
	}
	return max(0, time.Until(d.until))
}

// runs reports whether its time has not passed.
func (d delay) runs() bool { return d.left() > 0 }

// isOver reports whether it has begun, and its time has passed.
func (d delay) isOver() bool { return d.begun() && !d.runs() }

// setAhead records the entry that was ahead at revision, nil if there was none. With delays the lock delay begins, or
// begins again, in the same step: beforeRevoke may remove an entry that is placed and has no delay.
func (w *wait) setAhead(ahead *mvccpb.KeyValue, revision int64, delays bool) {
	w.noteAhead(ahead, revision, delays)
	w.e.say(steps.Step{Action: steps.Judged, Delays: delays, Unfound: delays && ahead == nil && w.others.Unknown})
}

// setUnknown is setAhead where the history is compacted that would tell whether the lock delay must begin: it does.
func (w *wait) setUnknown(ahead *mvccpb.KeyValue, revision int64) {
	w.noteAhead(ahead, revision, true)
	w.e.say(steps.Step{Action: steps.Judged, Delays: true, Unfound: true})
}

// noteAhead is setAhead for a judgment that is not over.
func (w *wait) noteAhead(ahead *mvccpb.KeyValue, revision int64, delays bool) {
	if !delays && w.delay.isOver() {
		w.e.say(steps.Step{Action: steps.Waited})
	}
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	w.ahead, w.seen, w.e.stage = ahead, revision, max(w.e.stage, placed)
	if ahead != nil { // otherwise nothing is left to be judged
		w.heardOf(revision)
	}
	switch {
	case delays && w.e.q.shared.lockDelay > 0:
		w.delay = delayOf(w.e.q.shared.lockDelay)
	case w.delay.isOver():
		w.delay = delay{} // what told this serves for endDelay
	}
}

// heardOf records that the store has a revision now. Entries that leave may do so on a goroutine each.
func (w *wait) heardOf(revision int64) {
	if !w.e.leaving {
		w.e.of.past.Hear(revision, time.Now(), w.e.q.shared.lockDelay)
	}
}

func (w *wait) setDelay(d delay) {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	w.delay = d
}

// delayLeft is the rest of the lock delay, which counts only once the queue is free.
func (w *wait) delayLeft() time.Duration {
	if w.ahead != nil {
		return 0
	}
	return w.delay.left()
}

// locate reads which entry was ahead at the entry's create revision. That is unknown if an earlier copy of the put,
// whose reply was lost, put the entry.
func (w *wait) locate(ctx context.Context) error {
	e := w.e
	switch {
	case e.stage != created:
		return nil
	case w.permit != nil:
		return w.permit.locate(ctx)
	}
	ask := txns.Ops{e.q.Nearest(e.rev-1, e.rev), e.q.shared.getEpoch}
	at, compacted := e.rev, false
	r, err := w.read(ctx, ask)
	if errors.Is(err, rpctypes.ErrCompacted) {
		// What stood then, and how it left, can no longer be known.
		compacted = true
		ask[0] = e.q.Nearest(e.rev-1, 0)
		if r, err = w.read(ctx, ask); err == nil {
			at = r.Header.Revision
		}
	}
	if err != nil {
		return err
	}
	if compacted {
		w.setUnknown(r.First(0), at)
	} else {
		w.setAhead(r.First(0), at, e.of.requeued)
	}
	if e.leaving {
		return nil
	}
	e.of.revision = at
	return e.takeToken(r.Range(1).Kvs)
}

// untilNoneAhead waits until nothing is ahead of the entry.
func (w *wait) untilNoneAhead(ctx context.Context) error {
	await := w.awaitAhead
	if w.permit != nil {
		await = w.permit.await
	}
	for w.ahead != nil {
		if ctx.Err() != nil {
			return backoff.ContextErr(ctx)
		}
		if err := await(ctx); err != nil {
			return err
		}
		telemetry.Woken(ctx)
	}
	return nil
}

// awaitAhead waits until the entry ahead is gone, and returns nil when it is known what stands ahead now.
//
// If an entry of the attempt was deleted by hand, or written to by an administrator, nothing but verify tells it before
// that, once in awaiting.RecheckAfter. That costs the attempt its place and delays no other one: those behind watch the
// entry, and in the other queues of a set they wait as long as behind a set that has lost nothing, or RecheckAfter.
func (w *wait) awaitAhead(ctx context.Context) error {
	ahead := w.ahead
	return awaiting.Change{
		Host: w.e.q.host, Streams: &w.e.q.shared.streams,
		Key:  string(ahead.Key),
		Opts: []clientv3.OpOption{clientv3.WithFilterPut()},
		Over: func() bool { return w.ahead != ahead },
		Look: w.verify,
		Told: w.heardOf,
		Hear: func(ctx context.Context, events []*clientv3.Event) error {
			for _, event := range events {
				if reads.IsEnd(event, ahead) {
					return w.judge(ctx, event.Kv.ModRevision)
				}
			}
			return nil
		},
	}.Await(ctx)
}

// untilTrusted waits until no lock delay runs for an entry that nothing is ahead of, its lease is trusted, and it was
// seen not long ago.
func (w *wait) untilTrusted(ctx context.Context) error {
	lease := w.e.of.lease
	for {
		var err error
		switch {
		case ctx.Err() != nil:
			return backoff.ContextErr(ctx)
		case w.delayLeft() > 0:
			w.tell(ctx)
			err = w.untilRemovable(ctx)
		case lease.Check() != nil:
			// Suspended at the front. By the time that the lease is trusted again,
			// another client may have deleted the entry.
			if err = lease.AwaitConnected(ctx); err == nil {
				err = w.verify(ctx)
			}
		case w.delay.begun():
			err = w.endDelay(ctx)
		case w.e.of.lookIsOld():
			err = w.verify(ctx)
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// endDelay reads the entry when its lock delay is over. Without a quorum no poll tells a revoked holder, however long
// the delay, and no read is answered. A reply that comes late may mean that there is a quorum since just now: then the
// delay runs once more. Not twice, or a slow network would keep the entry from holding. Package quietmodel has this
// rule.
//
// That an administrator has written to the entry is not looked at: the hold finds that.
func (w *wait) endDelay(ctx context.Context) error {
	a, lockDelay, began := w.e.of, w.e.q.shared.lockDelay, time.Now()
	r, err := txns.Txn{Then: txns.Ops{reads.Meta(w.e.key)}}.Ask(ctx, w.e.q.host.Sender(), sending.Read)
	if err != nil {
		return err
	}
	if !reads.IsEntry(r.First(0), w.e.rev) {
		return ErrEntryGone
	}
	a.stoodAt = began
	var again delay
	if !a.delayed && time.Since(a.delaysEnd) > lockDelay/4 {
		a.delayed = true
		again = delayOf(lockDelay)
	}
	if !again.begun() {
		w.e.say(steps.Step{Action: steps.Waited})
	}
	w.setDelay(again)
	return nil
}

// untilRemovable waits until, as far as this session knows, the entry may be removed: it is known which entry is ahead,
// and if there is none, no lock delay runs. The Txn that removes the entry compares the rest: see entry.removalCmps.
func (w *wait) untilRemovable(ctx context.Context) error {
	if err := w.locate(ctx); err != nil {
		return err
	}
	if left := w.delayLeft(); left > 0 && !calls.Sleep(ctx, left) {
		return backoff.ContextErr(ctx)
	}
	return nil
}

// describe returns what to add to the error of a call whose context has ended: what it was waiting for, unless that is
// another entry.
func (w *wait) describe(ctx context.Context) string {
	switch {
	case ctx.Err() == nil:
		return ""
	case w.e.stage < placed:
		return "; etcd has not answered the request to queue"
	case w.ahead != nil:
		return "" // the place says it
	case w.delayLeft() > 0 && w.e.ticket.inSet:
		return fmt.Sprintf("; it was first in the queue of %s, and the lock delay had not passed", names.Quote(w.e.q.At.Name))
	case w.delayLeft() > 0:
		return "; it was first in the queue, and the lock delay had not passed"
	case w.e.ticket.inSet:
		return "; it was first in all queues, and the session was not connected"
	default:
		return "; it was first in the queue, and the session was not connected"
	}
}
