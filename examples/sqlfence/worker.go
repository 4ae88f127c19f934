//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// workerCommand makes this program a worker: worker NAME JOB.
const workerCommand = "worker"

// job is what a worker is told.
type job struct {
	Endpoints []string // of etcd
	DSN       string   // of the database
	ID        string   // of this run
}

func (j job) lock() string { return "sqlfence-example/" + j.ID }

// event is one line that a worker prints.
type event struct {
	What  string        `json:"what"`
	Token fencing.Token `json:"token,omitzero"`
	Mark  fencing.Token `json:"mark,omitzero"`   // the larger token that the guard has seen
	Entry string        `json:"entry,omitempty"` // acquired: the lock's key in etcd
	Lost  bool          `json:"lost,omitempty"`  // Error is a *session.LostError
	Stale bool          `json:"stale,omitempty"` // Error is a fencing.ErrStale
	Error string        `json:"error,omitempty"`
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
func work(ctx context.Context, name string, j job, say func(string, event, error), goOn <-chan struct{}) (err error) {
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

	say(waits, event{}, nil)
	lk, err := locker.NewMutex(sess, j.lock()).With(locker.Options{Owner: name}).Lock(ctx)
	if err != nil {
		return err
	}
	say(acquired, event{Token: lk.Token(), Entry: lk.Key()}, nil)
	if err := errors.Join(d.writeGuarded(ctx, lk, value(name)), d.writePlainly(ctx, value(name))); err != nil {
		return err
	}
	say(wrote, event{}, nil)

	// Something long. It is here that A is stopped, with no transaction open:
	// one that is would keep its row locked.
	select {
	case <-goOn:
	case <-ctx.Done():
		return ctx.Err()
	}

	if lk.Check() != nil {
		// What no worker should do that has just been told of its loss: it
		// writes all the same. The guard asks Check itself, and sends nothing.
		say(lateGuarded, event{}, d.writeGuarded(ctx, lk, lateValue(name)))
		// But a pause may fall between any Check and what follows it. Then it
		// is the database that compares.
		say(lateBlindly, event{}, d.writeGuarded(ctx, pausedAfterCheck{lk}, lateValue(name)))
		// A plain UPDATE has nothing that could be compared.
		say(latePlainly, event{}, d.writePlainly(ctx, lateValue(name)))
	}
	say(workerIsDone, event{}, lk.Unlock(ctx))
	return nil
}

// pausedAfterCheck is a lock as it looks to code that was paused right after it
// had checked: all was well.
type pausedAfterCheck struct{ *locker.Lock }

func (pausedAfterCheck) Check() error { return nil }

// workerMain runs work for a parent that reads events from stdout, and lets the
// worker go on by a line to stdin. When stdin ends, so does the worker.
func workerMain(args []string, stdin io.Reader, stdout, stderr io.Writer) (exitCode int) {
	var j job
	if len(args) != 2 || json.Unmarshal([]byte(args[1]), &j) != nil {
		fmt.Fprintln(stderr, "usage: sqlfence", workerCommand, "NAME JOB")
		return 2
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	goOn := make(chan struct{})
	go func() { // ends with stdin, or with the process
		defer cancel()
		for lines := bufio.NewScanner(stdin); lines.Scan(); {
			goOn <- struct{}{}
		}
	}()
	out := json.NewEncoder(stdout)
	say := func(what string, ev event, err error) {
		ev.What = what
		if err != nil {
			ev.Error, ev.Lost, ev.Stale = err.Error(), errors.Is(err, session.ErrLost), errors.Is(err, fencing.ErrStale)
			if below, ok := errors.AsType[*fencing.MarkError](err); ok {
				ev.Mark = below.Mark
			}
		}
		if out.Encode(ev) != nil {
			cancel() // nobody listens
		}
	}
	if err := work(ctx, args[0], j, say, goOn); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// value and lateValue are what a worker writes while it holds, and after.
func value(name string) string     { return "from " + name }
func lateValue(name string) string { return "from " + name + ", too late" }
