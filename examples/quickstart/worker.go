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
	Endpoints []string
	Lock      string // name of the lock
	Guarded   string // key written through the fence
	Unguarded string // key written plainly
}

// event is one line that a worker prints.
type event struct {
	What  string        `json:"what"`
	Token fencing.Token `json:"token,omitzero"`
	Entry string        `json:"entry,omitempty"` // acquired: the lock's key in etcd
	Lost  string        `json:"lost,omitempty"`  // the cause, if Error is a *session.LostError
	Stale bool          `json:"stale,omitempty"` // Error is a fencing.ErrStale
	Error string        `json:"error,omitempty"`
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
func work(ctx context.Context, name string, j job, say func(string, event, error), goOn <-chan struct{}) (err error) {
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
	lk, err := locker.NewMutex(sess, j.Lock).With(locker.Options{Owner: name}).Lock(ctx)
	if err != nil {
		return err
	}
	say(acquired, event{Token: lk.Token(), Entry: lk.Key()}, nil)

	guarded := fencing.NewFencedWriter(lk)
	if _, err := guarded.Put(ctx, j.Guarded, value(name)); err != nil {
		return err
	}
	if _, err := cli.Put(ctx, j.Unguarded, value(name)); err != nil {
		return err
	}
	say(wrote, event{}, nil)

	// Something long. It is here that A is stopped.
	select {
	case <-goOn:
	case <-ctx.Done():
		return ctx.Err()
	}

	err = lk.Check()
	say(checked, event{}, err)
	if err != nil {
		writeTooLate(ctx, cli, lk, name, j, say)
	}
	say(released, event{}, lk.Unlock(ctx))
	return nil
}

// writeTooLate does what no worker should do that has just been told of its
// loss: it writes all the same.
func writeTooLate(ctx context.Context, cli *clientv3.Client, lk *locker.Lock, name string, j job, say func(string, event, error)) {
	// A FencedWriter asks Check itself and sends nothing.
	_, err := fencing.NewFencedWriter(lk).Put(ctx, j.Guarded, lateValue(name))
	say(wroteGuarded, event{}, err)

	// But a pause may fall between any Check and what follows it. Then the
	// write is sent, and it is etcd that compares.
	_, err = fencing.NewFencedWriter(pausedAfterCheck{lk}).Put(ctx, j.Guarded, lateValue(name))
	say(wroteBlindly, event{}, err)

	// A plain Put has nothing that could be compared.
	_, err = cli.Put(ctx, j.Unguarded, lateValue(name))
	say(wrotePlainly, event{}, err)
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
		fmt.Fprintln(stderr, "usage: quickstart", workerCommand, "NAME JOB")
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
			ev.Error = err.Error()
			ev.Stale = errors.Is(err, fencing.ErrStale)
			if lost, ok := errors.AsType[*session.LostError](err); ok {
				ev.Lost = lost.Cause.String()
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

// outcome is the event's error as a parent reports it when it expected another.
func (e event) outcome() string {
	if e.Error == "" {
		return "that all is well"
	}
	return fmt.Sprintf("%q", e.Error)
}
