//go:build unix

package main

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// job is the input of a worker.
type job struct {
	Endpoints []string // of etcd
	DSN       string   // of the database
	ID        string   // of this run
}

func (j job) lock() string { return "sqlfence-example/" + j.ID }

// resume is the parent's message to a worker that has written.
const resume = "resume"

// event is the output of a worker, with each of the names below.
type event struct {
	Token holdfast.Token `json:",omitzero"` // with acquired
	Entry string         // with acquired: the lock's key in etcd
	Error string
	Lost  bool           // Error is a *holdfast.LostError
	Stale bool           // Error is a fencing.ErrStale
	Mark  holdfast.Token `json:",omitzero"` // the mark, if Error is a *fencing.MarkError
}

// The events, in this order; the late ones only if the lock was lost.
const (
	waits         = "waits"
	acquired      = "acquired"
	wrote         = "wrote"
	lateGuarded   = "late: wrote guarded"
	lateUnchecked = "late: wrote guarded, without a check"
	latePlainly   = "late: wrote plainly"
	released      = "released"
)

// work is a worker: it locks, writes, does something that takes long, writes again and unlocks. A service would call
// Mutex.Do; this one keeps the handle, to show each line of defense alone.
func work(ctx context.Context, name string, j job, parent *child.Parent[event]) (err error) {
	d, err := open(j.DSN, j.ID)
	if err != nil {
		return err
	}
	defer d.Close()
	cli, err := session.NewClient(ctx, session.ClientConfig(j.Endpoints...))
	if err != nil {
		return err
	}
	defer cli.Close()
	sess, err := session.New(ctx, cli, &session.Options{TTL: demo.TTL})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sess.Close(ctx)) }()

	parent.Say(waits, event{})
	lk, err := locker.NewMutex(sess, j.lock()).With(locker.Options{Owner: name}).Lock(ctx)
	if err != nil {
		return err
	}
	parent.Say(acquired, event{Token: lk.Token(), Entry: lk.Key()})
	if err := errors.Join(d.writeGuarded(ctx, lk, value(name)), d.writePlainly(ctx, value(name))); err != nil {
		return err
	}
	parent.Say(wrote, event{})

	// This stands for something that takes long. A is stopped here, without an open transaction, which would keep its
	// row locked.
	if _, err := parent.Hear(ctx); err != nil {
		return err
	}

	if lk.Check() != nil {
		// No worker should write after that. The guard calls Check itself and sends nothing.
		parent.Say(lateGuarded, outcome(d.writeGuarded(ctx, lk, lateValue(name))))
		// A process can also be paused between a Check and the write that follows. Then the database compares.
		parent.Say(lateUnchecked, outcome(d.writeGuarded(ctx, uncheckedLock{lk}, lateValue(name))))
		// A plain UPDATE has nothing to compare.
		parent.Say(latePlainly, outcome(d.writePlainly(ctx, lateValue(name))))
	}
	parent.Say(released, outcome(lk.Unlock(ctx)))
	return nil
}

// uncheckedLock is a lock whose Check always succeeds, as it does for a process that is paused right after a Check.
type uncheckedLock struct{ *locker.Lock }

func (uncheckedLock) Check() error { return nil }

// outcome describes err for the parent.
func outcome(err error) (ev event) {
	if err != nil {
		ev.Error = err.Error()
	}
	ev.Lost, ev.Stale = errors.Is(err, holdfast.ErrLost), errors.Is(err, fencing.ErrStale)
	var below *fencing.MarkError
	if errors.As(err, &below) {
		ev.Mark = below.Mark
	}
	return ev
}

// value is what a worker writes while it holds the lock, lateValue what it writes after it has lost it.
func value(name string) string     { return "from " + name }
func lateValue(name string) string { return "from " + name + ", too late" }
