package front

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/internal/watching"
)

// Follow calls tell with the front of the queue, then after each change, in order, and after each regular read: at
// least once in every, perhaps with a new Sent only. It returns when ctx, the session or the client ends, or when etcd
// returns an error beyond retry. It survives every failure of its watch.
//
// tell runs on the caller's goroutine and must not block: until it returns, the client buffers events without a bound.
func (r *Monitor) Follow(ctx context.Context, every time.Duration, tell func(Front)) error {
	f := liveFront{r: r, tell: tell}
	from, end := r.followed()
	watched := watching.Follower{
		Env: r.env, Streams: &r.streams, From: from,
		Opts: []clientv3.OpOption{clientv3.WithRange(end)}, Every: every, Read: f.read, Hear: f.hear,
	}
	err := watched.Follow(ctx)
	if ctx.Err() != nil {
		return retry.ContextErr(ctx)
	}
	return lease.EndedBy(ctx, r.env, err)
}

// liveFront is the front as one call of Follow keeps it up to date.
type liveFront struct {
	r    *Monitor
	tell func(Front)
	seen Front // the latest that was told
}

// read reads the front, calls tell with it, and reports whether it has changed since the read before.
func (f *liveFront) read(ctx context.Context) (changed bool, err error) {
	now, err := f.r.read(ctx, f.seen)
	if err != nil {
		return false, err
	}
	changed = !now.same(f.seen)
	f.seen = now
	f.tell(now)
	return changed, nil
}

// hear applies events, and reads the front if they do not say all.
func (f *liveFront) hear(ctx context.Context, changes []*clientv3.Event) error {
	if f.apply(changes) {
		return nil
	}
	_, err := f.read(ctx)
	return err
}

// apply applies events. It tells a new value of the front entry. It returns false for any other event that may change
// the front: then a read decides.
func (f *liveFront) apply(changes []*clientv3.Event) bool {
	for _, ev := range changes {
		key := string(ev.Kv.Key)
		if ev.Kv.ModRevision <= f.seen.Revision {
			continue
		}
		switch {
		case f.seen.Behind != "" && !f.r.at.Foreign: // until this claim has gone, no entry can hold
			if key == f.seen.Behind && ev.Type == clientv3.EventTypeDelete {
				return false
			}
		case f.r.at.IsClaim(key):
			// An entry and its claim are put and deleted together, and the entry tells.
		case f.seen.Entry == nil && ev.Type == clientv3.EventTypePut:
			return false
		case f.seen.Entry == nil || key != string(f.seen.Entry.Key):
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
