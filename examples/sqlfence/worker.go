//go:build unix

package main

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// job is what a worker is told.
type job struct {
	Endpoints []string // of etcd
	DSN       string   // of the database
	ID        string   // of this run
}

func (j job) lock() string { return "sqlfence-example/" + j.ID }

// goOn is what a worker is told when it has written.
const goOn = "go on"

// event is what a worker says with each of the following.
type event struct {
	Token fencing.Token `json:",omitzero"` // acquired
	Entry string        // acquired: the lock's key in etcd
	Error string
	Lost  bool          // Error is a *holdfast.LostError
	Stale bool          // Error is a fencing.ErrStale
	Mark  fencing.Token `json:",omitzero"` // the larger token that the guard has seen, if Error is a *fencing.MarkError
}

// The events, in this order. Those that say "late" only if the lock was lost.
const (
	waits        = "waits"
	acquired     = "acquired"
	wrote        = "wrote"
	lateGuarded  = "late: wrote guarded"
	lateBlindly  = "late: wrote guarded, without a check"
	latePlainly  = "late: wrote plainly"
	workerIsDone = "done"
)

// work is what a worker does: lock, write, go on with something long, write
// again, unlock. A service would use Mutex.Do; here each line of defence is to
// be seen alone.
func work(ctx context.Context, name string, j job, parent *child.Parent[event]) (err error) {
	d, err := open(j.DSN, j.ID)
	if err != nil {
		return err
	}
	defer d.db.Close()
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
	lk, err := locker.NewMutex(sess, j.lock()).With(locker.Options{Owner: name}).Lock(ctx)
	if err != nil {
		return err
	}
	parent.Say(acquired, event{Token: lk.Token(), Entry: lk.Key()})
	if err := errors.Join(d.writeGuarded(ctx, lk, value(name)), d.writePlainly(ctx, value(name))); err != nil {
		return err
	}
	parent.Say(wrote, event{})

	// Something long. It is here that A is stopped, with no transaction open:
	// one that is would keep its row locked.
	if _, err := parent.Hear(ctx); err != nil {
		return err
	}

	if lk.Check() != nil {
		// What no worker should do that has just been told of its loss: it
		// writes all the same. The guard asks Check itself, and sends nothing.
		parent.Say(lateGuarded, outcome(d.writeGuarded(ctx, lk, lateValue(name))))
		// But a pause may fall between any Check and what follows it. Then it
		// is the database that compares.
		parent.Say(lateBlindly, outcome(d.writeGuarded(ctx, pausedAfterCheck{lk}, lateValue(name))))
		// A plain UPDATE has nothing that could be compared.
		parent.Say(latePlainly, outcome(d.writePlainly(ctx, lateValue(name))))
	}
	parent.Say(workerIsDone, outcome(lk.Unlock(ctx)))
	return nil
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
	ev.Lost, ev.Stale = errors.Is(err, holdfast.ErrLost), errors.Is(err, fencing.ErrStale)
	if below, ok := errors.AsType[*fencing.MarkError](err); ok {
		ev.Mark = below.Mark
	}
	return ev
}

// value and lateValue are what a worker writes while it holds, and after.
func value(name string) string     { return "from " + name }
func lateValue(name string) string { return "from " + name + ", too late" }
