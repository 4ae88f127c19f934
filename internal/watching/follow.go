package watching

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// How old an observer lets its knowledge get, by default and at the least. A Follower reads in each third of that.
const (
	DefaultMaxAge = 15 * time.Second
	MinMaxAge     = 30 * time.Millisecond
)

// soonAfter is the time between two reads while Follower.Soon asks for them.
const soonAfter = 500 * time.Millisecond

// Follower follows the keys of a range: by one watch after the other, and by regular reads in case that one is silent.
type Follower struct {
	Client  *clientv3.Client
	Open    context.Context // as in Request
	Streams *Streams
	From    string
	End     string        // the first key behind the range
	Within  time.Duration // bounds the creation of a watch, which has longer on a stream that is busy
	Every   time.Duration // the time between two reads

	// Read reads the keys, and reports whether they are not as was known, from the read before and from Hear.
	Read func(ctx context.Context) (changed bool, err error)
	// Soon reports whether the next read is to come soon, because something changes that no event tells. nil: none does.
	Soon func() bool
	// Hear handles events, of which the first may be older than the latest read.
	Hear func(ctx context.Context, events []*clientv3.Event) error
}

// Watch follows the keys until its watch ends. It returns nil if that was healthy, so that the pauses start anew.
//
// The revision of the read that follows the creation of the watch is not smaller than that of the watch, so nothing is
// missed in between.
func (f *Follower) Watch(ctx context.Context) error {
	look := func(ctx context.Context) error { _, err := f.Read(ctx); return err }
	st, limit := f.Streams.Pick()
	armed, err := st.Arm(ctx, Request{
		Client: f.Client, Open: f.Open, Key: f.From, Opts: []clientv3.OpOption{clientv3.WithRange(f.End)},
		Within: max(limit, f.Within), Look: look,
	})
	if err != nil {
		return err
	}
	defer armed.Close()
	tick := time.NewTicker(f.Every)
	defer tick.Stop()
	if err := look(ctx); err != nil {
		return err
	}
	soon := false
	for {
		if now := f.Soon != nil && f.Soon(); now != soon {
			soon = now
			pause := f.Every
			if soon {
				pause = min(pause, soonAfter)
			}
			tick.Reset(pause)
		}
		news, err := armed.Next(ctx, tick.C)
		switch {
		case errors.Is(err, ErrTick):
			changed, err := f.Read(ctx)
			if err != nil {
				return err
			}
			if changed && !soon {
				// The watch has not told this. It may only be late, or silent for
				// good: its connection is dead, or its member hangs.
				return armed.GiveUp("the watch is behind")
			}
		case err != nil:
			return armed.Ended(ctx, err)
		default:
			if err := f.Hear(ctx, news.Events); err != nil {
				return err
			}
		}
	}
}
