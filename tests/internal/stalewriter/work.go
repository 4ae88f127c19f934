package stalewriter

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// Write increments the counter once and records the new value with the token of h. If the
// error Is fencing.ErrStale, h was refused.
type Write func(ctx context.Context, h fencing.Holder) error

// Event is what a process reports. The numbers are of isDone.
type Event struct {
	Writes  int // succeeded
	Unknown int // have an unknown outcome
}

const (
	hasWritten = "has written" // for the first time with this token
	isRefused  = "is refused"
	isDone     = "is done"

	finish = "finish" // what the parent says at the end
)

const (
	ttl       = time.Second
	lockDelay = 200 * time.Millisecond // the shortest that is allowed

	// pace bounds how often a holder writes, so that many of them share a machine.
	pace = time.Millisecond
)

// unaware is a lock that does not know about its loss.
type unaware struct{ *locker.Lock }

func (unaware) Check() error { return nil }

// Work is what each of the processes does: it acquires the lock and writes until it is refused,
// over and over. open returns how to write.
func Work(
	ctx context.Context, j Job, parent *child.Parent[Event],
	open func(ctx context.Context, j Job, cli *clientv3.Client) (Write, error),
) error {
	cli, err := clientv3.New(session.ClientConfig(j.Endpoints...))
	if err != nil {
		return err
	}
	defer cli.Close()
	write, err := open(ctx, j, cli)
	if err != nil {
		return err
	}
	sess, err := session.New(ctx, cli, &session.Options{TTL: ttl, LockDelay: lockDelay})
	if err != nil {
		return err
	}
	wait, finishing := context.WithCancel(ctx)
	go func() { // ends with the process
		if said, err := parent.Hear(ctx); err == nil && said == finish {
			finishing()
		}
	}()
	w := &writer{parent: parent, write: write, finish: wait, pace: time.Tick(pace)}
	for wait.Err() == nil {
		lk, err := locker.NewMutex(sess, j.Name).Lock(wait)
		if errors.Is(err, holdfast.ErrLost) || wait.Err() != nil && err != nil { // stopped during the wait, or the end
			continue
		}
		if err != nil {
			return err
		}
		refused, err := w.hold(ctx, unaware{lk})
		if err != nil {
			return err
		}
		_ = lk.Unlock(ctx) // returns that the lock was lost
		if refused {
			parent.Say(isRefused, Event{})
		}
	}
	parent.Say(isDone, w.done)
	return nil
}

type writer struct {
	parent *child.Parent[Event]
	write  Write
	finish context.Context
	pace   <-chan time.Time
	done   Event
}

// hold writes until h is refused, or the parent asks for the end. On a slow machine h may be refused
// before its first write; the parent, which expects a refusal after each has written, is not told.
func (w *writer) hold(ctx context.Context, h fencing.Holder) (refused bool, _ error) {
	said := false
	for w.finish.Err() == nil {
		switch err := w.once(ctx, h); {
		case err == nil:
			w.done.Writes++
			if !said {
				said = true
				w.parent.Say(hasWritten, Event{})
			}
		case errors.Is(err, holdfast.ErrOutcomeUnknown):
			w.done.Unknown++
		case errors.Is(err, fencing.ErrStale):
			return said, nil
		case !errors.Is(err, fencing.ErrNotDone):
			return false, err
		}
		<-w.pace
	}
	return false, nil
}

// once bounds a write, so that what was sent before a stop does not wait for ever after it.
func (w *writer) once(ctx context.Context, h fencing.Holder) error {
	ctx, cancel := context.WithTimeout(fencing.NewContext(ctx, h), 4*time.Second)
	defer cancel()
	return w.write(ctx, h)
}
