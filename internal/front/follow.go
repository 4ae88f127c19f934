package front

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/watching"
)

// Follow calls tell with the front of the queue, then after each change, in order, and after each regular read, one in
// every; then only Sent has changed. It returns when ctx, the session or the client ends, or when etcd returns an error
// that no retry can mend. It survives every failure of its watch.
//
// tell is called on the caller's goroutine and must not block: until it returns, the client buffers events without a
// bound.
func (r *Reader) Follow(ctx context.Context, every time.Duration, tell func(Front)) error {
	if err := r.ended(ctx); err != nil {
		return err
	}
	open, cancel := r.whileOpen(ctx)
	defer cancel()

	policy := r.policy
	policy.Attempt = 0 // a watch has no timeout
	f := follower{r: r, every: every, tell: tell}
	for {
		err := backoff.Retry(open, policy, f.watch)
		if ctx.Err() != nil {
			return backoff.ContextErr(ctx)
		}
		if err = r.reason(ctx, err); err != nil {
			return err
		}
	}
}

// follower is the state of one call of Follow.
type follower struct {
	r     *Reader
	every time.Duration
	tell  func(Front)
	seen  Front // the latest that tell was called with
}

// watch follows the queue until its watch ends. It returns nil if a healthy watch
// ended, so that the pauses start anew.
//
// The revision of the read that follows the creation of the watch is not smaller than
// that of the watch, so nothing is missed in between. Events up to the revision of the
// read are skipped.
func (f *follower) watch(ctx context.Context) error {
	look := func(ctx context.Context) error { _, err := f.read(ctx); return err }
	st, _ := f.r.streams.Pick()
	armed, err := st.Arm(ctx, watching.Request{
		Client: f.r.client, Open: f.r.open, Key: f.r.at.Entries, Opts: []clientv3.OpOption{clientv3.WithPrefix()},
		Within: f.r.policy.Attempt, Look: look,
	})
	if err != nil {
		return err
	}
	defer armed.Close()
	refresh := time.NewTicker(f.every)
	defer refresh.Stop()
	if err := look(ctx); err != nil {
		return err
	}
	for {
		changes, err := armed.Next(ctx, refresh.C)
		switch {
		case errors.Is(err, watching.ErrTick):
			changed, err := f.read(ctx)
			if err != nil {
				return err
			}
			if changed {
				// The watch has not told this. It may only be late, or silent for
				// good: its connection is dead, or its member hangs.
				return armed.GiveUp("the watch is behind")
			}
		case err != nil && armed.Healthy():
			return nil
		case err != nil:
			return backoff.Again(err)
		case !f.apply(changes.Events):
			if err := look(ctx); err != nil {
				return err
			}
		}
	}
}

// read reads the front, calls tell with it, and reports whether it has changed since the read before.
func (f *follower) read(ctx context.Context) (changed bool, err error) {
	now, err := f.r.read(ctx, f.seen)
	if err != nil {
		return false, err
	}
	changed = !now.same(f.seen)
	f.seen = now
	f.tell(now)
	return changed, nil
}

// apply applies events. A new value of the front entry goes to tell. apply returns false for any other event that may
// change the front: then a read decides.
func (f *follower) apply(changes []*clientv3.Event) bool {
	for _, ev := range changes {
		if ev.Kv.ModRevision <= f.seen.Revision {
			continue
		}
		switch {
		case f.seen.Entry == nil && ev.Type == clientv3.EventTypePut:
			return false
		case f.seen.Entry == nil || string(ev.Kv.Key) != string(f.seen.Entry.Key):
			// An entry behind the front.
		case ev.Type == clientv3.EventTypePut && f.seen.holds(ev.Kv):
			f.seen.Entry, f.seen.Value, f.seen.Revision = ev.Kv, f.r.valueOf(ev.Kv), ev.Kv.ModRevision
			f.tell(f.seen)
		default:
			return false
		}
	}
	return true
}
