package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/session"
)

// stoodLong is how long a watch must have stood for its end to be a new
// failure rather than one more of a row.
const stoodLong = time.Second

// Follow tells who holds, first as it is and then at every change, in order,
// until ctx or the session ends, or etcd says what no retry can mend; that is
// the error. In between it survives whatever happens to its watch. It reads
// again every now and then, as often as every says, and tells that too: the
// Sent of a sighting is then later and nothing else has changed.
//
// tell is called on the caller's goroutine and must not block: what is not
// read here piles up in the client.
func (q *Queue) Follow(ctx context.Context, every time.Duration, tell func(Sighting)) error {
	if err := q.usable(ctx); err != nil {
		return err
	}
	fctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(q.sess.Base().Context(), cancel)()

	policy := q.sess.Base().RetryPolicy()
	policy.Attempt = 0 // a watch lasts as long as it does
	f := follower{q: q, every: every, tell: tell}
	for {
		err := backoff.Retry(fctx, policy, f.watch)
		switch {
		case ctx.Err() != nil:
			return backoff.ContextErr(ctx)
		case q.sess.Base().Context().Err() != nil:
			return session.ErrClosed
		case err != nil:
			return err
		}
	}
}

// follower knows what it has told.
type follower struct {
	q     *Queue
	every time.Duration
	tell  func(Sighting)
	seen  Sighting
	told  bool
}

// watch follows the queue for as long as one watch lasts. nil: it lasted for a
// while, so the pauses before the next start anew.
//
// As in watchGone the watch is from "now", which is served at once, and the
// read made after it stands finds what was before. The read's revision is not
// smaller than the watch's, so nothing falls in between; what the watch tells
// of up to that revision is in the read already, and skipped.
func (f *follower) watch(ctx context.Context) error {
	streams := &f.q.local.streams
	wctx, generation := streams.context(f.q.sess.Base().Context())
	wctx, cancel := context.WithCancel(wctx)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()

	unarmed := time.AfterFunc(f.q.sess.Base().RetryPolicy().Attempt, cancel)
	defer unarmed.Stop()
	events := f.q.sess.Client().Watch(wctx, f.q.entries, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if _, err := f.next(ctx, events, nil); err != nil {
		if _, err := f.read(ctx); err != nil {
			return err
		}
		streams.leave(generation)
		return backoff.Again(fmt.Errorf("arm a watch: %w", err))
	}
	unarmed.Stop()
	armed := time.Now()

	refresh := time.NewTicker(f.every)
	defer refresh.Stop()
	if _, err := f.read(ctx); err != nil {
		return err
	}
	for {
		changes, err := f.next(ctx, events, refresh.C)
		switch {
		case err != nil && time.Since(armed) >= stoodLong:
			return nil
		case err != nil:
			return backoff.Again(err)
		case changes != nil:
			if f.apply(changes) {
				continue
			}
			if _, err := f.read(ctx); err != nil {
				return err
			}
		default:
			changed, err := f.read(ctx)
			if err != nil {
				return err
			}
			if changed {
				// The watch has not told: it may merely be late, or silent
				// for good on a connection that is dead.
				return backoff.Again(errors.New("the watch is behind"))
			}
		}
	}
}

// next waits for the watch (changes is not nil), for tick (both are nil), or
// for the end of either (err).
func (f *follower) next(ctx context.Context, events clientv3.WatchChan, tick <-chan time.Time) (changes []*clientv3.Event, err error) {
	select {
	case resp, ok := <-events:
		if !ok {
			return nil, errors.New("the watch was closed")
		}
		if resp.Events == nil {
			resp.Events = []*clientv3.Event{}
		}
		return resp.Events, resp.Err()
	case <-tick:
		return nil, nil
	case <-ctx.Done():
		return nil, backoff.ContextErr(ctx)
	}
}

// read looks who holds and tells it, and reports whether that is a change.
func (f *follower) read(ctx context.Context) (changed bool, err error) {
	now, err := f.q.sight(ctx, f.seen)
	if err != nil {
		return false, err
	}
	changed = f.told && !now.same(f.seen)
	f.seen, f.told = now, true
	f.tell(now)
	return changed, nil
}

// apply goes through what the watch saw. A new value of the front entry is
// told from the event; with anything else that may change who holds, it
// reports false and a read decides.
func (f *follower) apply(changes []*clientv3.Event) bool {
	for _, ev := range changes {
		if ev.Kv.ModRevision <= f.seen.Revision {
			continue
		}
		switch {
		case f.seen.Entry == nil && ev.Type == mvccpb.Event_PUT:
			return false
		case f.seen.Entry == nil || string(ev.Kv.Key) != string(f.seen.Entry.Key):
			// Joined or left further back.
		case ev.Type == mvccpb.Event_PUT && f.seen.holds(ev.Kv):
			f.seen.Entry, f.seen.Revision = ev.Kv, ev.Kv.ModRevision
			f.tell(f.seen)
		default:
			return false
		}
	}
	return true
}
