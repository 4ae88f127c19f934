package watching

import (
	"cmp"
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/lease"
)

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
