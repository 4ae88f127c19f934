package watching

import (
	"cmp"
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// How old an observer lets its knowledge get: by default, and the shortest. A Follower reads in each third of that.
const (
	DefaultMaxAge = 15 * time.Second
	MinMaxAge     = 30 * time.Millisecond
)

// maxPatience bounds by how much the patience with a new watch grows.
const maxPatience = 16

// Follower follows the keys of a range: by one watch after the other, and by regular reads in case a watch is silent.
type Follower struct {
	Env     *lease.Env // the client, the pauses between watches that fail, and the session whose end is the end
	Streams *Streams
	From    string
	Opts    []clientv3.OpOption // of the watch
	Every   time.Duration       // the time between two reads

	// Read reads the keys, and reports whether they differ from what the read before and Hear have told.
	Read func(ctx context.Context) (changed bool, err error)
	// Again is the read beside a living watch; nil: Read.
	Again func(ctx context.Context) (changed bool, err error)
	// Hear handles events. The first of them may be older than the latest read.
	Hear func(ctx context.Context, events []*clientv3.Event) error
}

// Follow follows the keys until ctx, the session or the client ends, or until etcd returns an error that no retry can
// mend. It survives every failure of its watch.
func (f *Follower) Follow(ctx context.Context) error {
	ctx, cancel := lease.WithSession(ctx, f.Env)
	defer cancel()
	for {
		patience := time.Duration(1) // anew after a healthy watch, like the pauses
		err := backoff.Retry(ctx, f.Env.Retry, func(ctx context.Context) error {
			err := f.watch(ctx, patience)
			// The member may hang, or be overloaded. A watch made again and again would add to the load.
			patience = min(2*patience, maxPatience)
			return retry.WithConnection(f.Env.Client.ActiveConnection(), err)
		})
		if err != nil {
			return err
		}
	}
}

// watch follows the keys until its watch ends. It returns nil if that was healthy. patience multiplies the time after
// which it doubts the stream of a watch that is not created.
func (f *Follower) watch(ctx context.Context, patience time.Duration) error {
	again := f.Again
	if again == nil {
		again = f.Read
	}
	look := func(ctx context.Context) error { _, err := f.Read(ctx); return err }
	st, limit := f.Streams.Pick()
	armed, err := st.Arm(ctx, Request{
		Client: f.Env.Client, Open: f.Env.Context, Key: f.From, Opts: f.Opts, Within: patience * limit, Look: look,
	})
	if err != nil {
		return err
	}
	defer armed.Close()
	tick := time.NewTicker(f.Every)
	defer tick.Stop()
	// This read has at least the revision of the watch, so nothing is missed in between. What it finds, the watch may tell
	// once more.
	if err := look(ctx); err != nil {
		return err
	}
	for {
		news, err := armed.Next(ctx, tick.C)
		switch {
		case errors.Is(err, ErrTick):
			changed, err := again(ctx)
			if err != nil {
				return err
			}
			if changed {
				// The watch has not told this. It may only be late, or silent for good: its connection is dead, or its member
				// hangs.
				return armed.GiveUp(ctx, "the watch is behind")
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

// RecheckAfter is the time between two looks beside a living watch. It bounds how long a waiter misses what only a look
// finds, or what the watch does not tell: its member may hang.
const RecheckAfter = 30 * time.Second

// Change says what a waiter waits for, and what it watches meanwhile.
type Change struct {
	Env     *lease.Env // the waiter's
	Streams *Streams
	Key     string
	Opts    []clientv3.OpOption

	Recheck time.Duration                   // between two looks beside a living watch; 0: RecheckAfter
	Again   func(ctx context.Context) error // such a look; nil: Look

	Over func() bool                                               // the wait is over
	Look func(ctx context.Context) error                           // reads what no event tells
	Hear func(ctx context.Context, events []*clientv3.Event) error // handles the events of some revisions, or of none
}

// errOver ends the Follower of a Change.
var errOver = errors.New("the wait is over")

// Await watches until the wait is over, or the session ends.
func (c Change) Await(ctx context.Context) error {
	over := func(err error) error {
		if c.Over() {
			return errOver
		}
		return err
	}
	if c.Again == nil {
		c.Again = c.Look
	}
	f := Follower{
		Env: c.Env, Streams: c.Streams, From: c.Key, Opts: c.Opts, Every: cmp.Or(c.Recheck, RecheckAfter),
		Read:  func(ctx context.Context) (bool, error) { return false, over(c.Look(ctx)) },
		Again: func(ctx context.Context) (bool, error) { return false, over(c.Again(ctx)) },
		Hear:  func(ctx context.Context, events []*clientv3.Event) error { return over(c.Hear(ctx, events)) },
	}
	if err := f.Follow(ctx); !errors.Is(err, errOver) {
		return err
	}
	return nil
}
