//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// job is the input of a worker.
type job struct {
	Endpoints []string
	Lock      string // the lock's name
	Guarded   string // a key written through the fence
	Unguarded string // a key written plainly
}

// resume is the parent's message to a worker that has written.
const resume = "resume"

// event is the output of a worker, with each of the names below.
type event struct {
	Token holdfast.Token `json:",omitzero"` // with acquired
	Entry string         // with acquired: the lock's key in etcd
	Error string
	Lost  string // the cause, if Error is a *holdfast.LostError
	Stale bool   // Error is a fencing.ErrStale
}

// The events, in this order.
const (
	waits          = "waits"
	acquired       = "acquired"
	wrote          = "wrote"
	checked        = "checked"
	wroteGuarded   = "wrote guarded after the loss"
	wroteUnchecked = "wrote guarded after the loss, without a check"
	wrotePlainly   = "wrote plainly after the loss"
	released       = "released"
)

// work is a worker: it locks, writes, does something that takes long, writes again and unlocks.
//
// A service would call Mutex.Do, which cancels the context of the work when the lock is lost. This one keeps the
// handle, to show each line of defense alone.
func work(ctx context.Context, name string, j job, parent *child.Parent[event]) (err error) {
	cli, err := session.NewClient(ctx, session.ClientConfig(j.Endpoints...))
	if err != nil {
		return err
	}
	defer cli.Close()
	sess, err := session.New(ctx, cli, session.Options{TTL: demo.TTL})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sess.Close(ctx)) }()

	parent.Say(waits, event{})
	lk, err := locker.NewMutex(sess, j.Lock).With(locker.Options{Owner: name}).Lock(ctx)
	if err != nil {
		return err
	}
	parent.Say(acquired, event{Token: lk.Token(), Entry: lk.Key()})

	guarded := etcdfence.NewWriter(lk)
	if _, err := guarded.Put(ctx, j.Guarded, value(name)); err != nil {
		return err
	}
	if _, err := cli.Put(ctx, j.Unguarded, value(name)); err != nil {
		return err
	}
	parent.Say(wrote, event{})

	// This stands for something that takes long. A is stopped here.
	if _, err := parent.Hear(ctx); err != nil {
		return err
	}

	err = lk.Check()
	parent.Say(checked, outcome(err))
	if err != nil {
		writeTooLate(ctx, cli, lk, name, j, parent)
	}
	parent.Say(released, outcome(lk.Unlock(ctx)))
	return nil
}

// writeTooLate writes although Check has reported the loss, which no worker should do.
func writeTooLate(
	ctx context.Context, cli *clientv3.Client, lk *locker.Lock, name string, j job, parent *child.Parent[event],
) {
	// An etcdfence.Writer calls Check itself and sends nothing.
	_, err := etcdfence.NewWriter(lk).Put(ctx, j.Guarded, lateValue(name))
	parent.Say(wroteGuarded, outcome(err))

	// A process can also be paused between a Check and the write that follows. Then the write is sent, and etcd
	// compares.
	_, err = etcdfence.NewWriter(uncheckedLock{lk}).Put(ctx, j.Guarded, lateValue(name))
	parent.Say(wroteUnchecked, outcome(err))

	// A plain Put has nothing to compare.
	_, err = cli.Put(ctx, j.Unguarded, lateValue(name))
	parent.Say(wrotePlainly, outcome(err))
}

// uncheckedLock is a lock whose Check always succeeds, as it does for a process that is paused right after a Check.
type uncheckedLock struct{ *locker.Lock }

func (uncheckedLock) Check() error { return nil }

// outcome describes err for the parent.
func outcome(err error) (ev event) {
	if err != nil {
		ev.Error = err.Error()
	}
	var lost *holdfast.LostError
	if errors.As(err, &lost) {
		ev.Lost = lost.Cause.String()
	}
	ev.Stale = errors.Is(err, fencing.ErrStale)
	return ev
}

// String is used by the parent in the error about an unexpected outcome.
func (e event) String() string {
	if e.Error == "" {
		return "no error"
	}
	return fmt.Sprintf("%q", e.Error)
}
