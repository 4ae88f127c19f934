//go:build unix

// Package worker is a client of locks and elections that does as it is told. The tests of a mixed fleet compile it
// twice: against the present code, and against the last release, in whose source tree they put a copy. So it uses only
// what the two have in common; where that is no longer enough, the last release gets its own copy (see
// build_test.go).
package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// Job is what a worker starts with.
type Job struct {
	Endpoints []string
	TTL       time.Duration
}

// Order is one thing to do. A worker carries out one at a time, and replies to each with an event of the same What.
type Order struct {
	What  string // a constant below
	Name  string // of the lock or election
	Key   string // for Write and Count
	Value string // for Write and Campaign
	Times int    // for Count
}

// The orders.
const (
	Open     = "open"     // the reply to the job, not an order
	Lock     = "lock"     // waits until the lock is held
	TryLock  = "try lock" // Err if it is not free
	Unlock   = "unlock"
	Campaign = "campaign" // waits until the worker leads
	Resign   = "resign"
	Leader   = "leader" // Value is the leader's
	Lost     = "lost"   // waits until what is held is lost
	Write    = "write"  // a fenced write of Value to Key
	Count    = "count"  // Times: lock, add 1 to Key, unlock
)

// Event is the reply to an order.
type Event struct {
	Token int64  // Lock, TryLock, Campaign; of a type that has another name in each version
	Value string // Leader
	Err   string
	Stale bool // Err is a fencing.ErrStale
}

// worker is one session, and what it holds.
type worker struct {
	cli  *clientv3.Client
	sess *session.Session
	lock *locker.Lock
	term *election.Term
}

// Work runs a worker: the argument of child.Main.
func Work(ctx context.Context, _ string, j Job, parent *child.Parent[Event]) error {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	cli, err := clientv3.New(clientv3.Config{Endpoints: j.Endpoints, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	sess, err := session.New(ctx, cli, session.Options{TTL: j.TTL})
	if err != nil {
		return err
	}
	w := &worker{cli: cli, sess: sess}
	parent.Say(Open, Event{})
	for {
		message, err := parent.Hear(ctx)
		if err != nil {
			return err
		}
		var o Order
		if err := json.Unmarshal([]byte(message), &o); err != nil {
			return err
		}
		var ev Event
		if err := w.carryOut(ctx, o, &ev); err != nil {
			ev.Err, ev.Stale = err.Error(), errors.Is(err, fencing.ErrStale)
		}
		parent.Say(o.What, ev)
	}
}

func (w *worker) carryOut(ctx context.Context, o Order, ev *Event) (err error) {
	switch o.What {
	case Lock, TryLock:
		mu := locker.NewMutex(w.sess, o.Name)
		if o.What == Lock {
			w.lock, err = mu.Lock(ctx)
		} else {
			w.lock, err = mu.TryLock(ctx)
		}
		if err == nil {
			ev.Token = int64(w.lock.Token())
		}
		return err
	case Unlock:
		return w.lock.Unlock(ctx)
	case Campaign:
		if w.term, err = election.New(w.sess, o.Name).With(election.Options{Value: o.Value}).Campaign(ctx); err == nil {
			ev.Token = int64(w.term.Token())
		}
		return err
	case Resign:
		return w.term.Resign(ctx)
	case Leader:
		leader, err := election.New(w.sess, o.Name).Leader(ctx)
		ev.Value = leader.Value
		return err
	case Lost:
		<-w.lock.Done()
		return w.lock.Check()
	case Write:
		_, err = etcdfence.NewWriter(unchecked{w.lock}).Put(ctx, o.Key, o.Value)
		return err
	case Count:
		for range o.Times {
			if err := w.count(ctx, o); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("unknown order %q", o.What)
}

// count adds 1 to a key, in a way that loses an update unless the lock excludes others.
func (w *worker) count(ctx context.Context, o Order) error {
	lk, err := locker.NewMutex(w.sess, o.Name).Lock(ctx)
	if err != nil {
		return err
	}
	resp, err := w.cli.Get(ctx, o.Key)
	if err != nil {
		return err
	}
	n := 0
	if len(resp.Kvs) > 0 {
		if n, err = strconv.Atoi(string(resp.Kvs[0].Value)); err != nil {
			return err
		}
	}
	if _, err := w.cli.Put(ctx, o.Key, strconv.Itoa(n+1)); err != nil {
		return err
	}
	return lk.Unlock(ctx)
}

// unchecked is a lock whose Check always succeeds, so that etcd has to refuse a stale write.
type unchecked struct{ *locker.Lock }

func (unchecked) Check() error { return nil }
