//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// job is what a worker is told.
type job struct {
	Endpoints []string
	Lock      string // name of the lock
	Guarded   string // key written through the fence
	Unguarded string // key written plainly
}

// goOn is what a worker is told when it has written.
const goOn = "go on"

// event is what a worker says with each of the following.
type event struct {
	Token fencing.Token `json:",omitzero"` // acquired
	Entry string        // acquired: the lock's key in etcd
	Error string
	Lost  string // the cause, if Error is a *holdfast.LostError
	Stale bool   // Error is a fencing.ErrStale
}

// The events, in this order.
const (
	waits        = "waits"
	acquired     = "acquired"
	wrote        = "wrote"
	checked      = "checked"
	wroteGuarded = "wrote guarded, though lost"
	wroteBlindly = "wrote guarded, though lost, without a check"
	wrotePlainly = "wrote plainly, though lost"
	released     = "released"
)

// work is what a worker does: lock, write, go on with something long, write
// again, unlock.
//
// A service would use Mutex.Do, whose context ends the work by itself when the
// lock is lost. Here the lock is held by its handle, so that each line of
// defence can be seen alone.
func work(ctx context.Context, name string, j job, parent *child.Parent[event]) (err error) {
	cli, err := clientv3.New(session.ClientConfig(j.Endpoints...))
	if err != nil {
		return err
	}
	defer cli.Close()
	sess, err := session.New(ctx, cli, &session.Options{TTL: ttl})
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

	guarded := fencing.NewFencedWriter(lk)
	if _, err := guarded.Put(ctx, j.Guarded, value(name)); err != nil {
		return err
	}
	if _, err := cli.Put(ctx, j.Unguarded, value(name)); err != nil {
		return err
	}
	parent.Say(wrote, event{})

	// Something long. It is here that A is stopped.
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

// writeTooLate does what no worker should do that has just been told of its
// loss: it writes all the same.
func writeTooLate(ctx context.Context, cli *clientv3.Client, lk *locker.Lock, name string, j job, parent *child.Parent[event]) {
	// A FencedWriter asks Check itself and sends nothing.
	_, err := fencing.NewFencedWriter(lk).Put(ctx, j.Guarded, lateValue(name))
	parent.Say(wroteGuarded, outcome(err))

	// But a pause may fall between any Check and what follows it. Then the
	// write is sent, and it is etcd that compares.
	_, err = fencing.NewFencedWriter(pausedAfterCheck{lk}).Put(ctx, j.Guarded, lateValue(name))
	parent.Say(wroteBlindly, outcome(err))

	// A plain Put has nothing that could be compared.
	_, err = cli.Put(ctx, j.Unguarded, lateValue(name))
	parent.Say(wrotePlainly, outcome(err))
}

// pausedAfterCheck is a lock as it looks to code that was paused right after it
// had checked: all was well.
type pausedAfterCheck struct{ *locker.Lock }

func (pausedAfterCheck) Check() error { return nil }

// outcome is the event that tells of err.
func outcome(err error) (ev event) {
	if err != nil {
		ev.Error = err.Error()
	}
	if lost, ok := errors.AsType[*holdfast.LostError](err); ok {
		ev.Lost = lost.Cause.String()
	}
	ev.Stale = errors.Is(err, fencing.ErrStale)
	return ev
}

// String is the outcome as a parent reports it when it expected another.
func (e event) String() string {
	if e.Error == "" {
		return "that all is well"
	}
	return fmt.Sprintf("%q", e.Error)
}
