// Jobqueue works off jobs in a SQL table, one after the other and in their order, with any number of workers of which
// one works and the others wait:
//
//	go run ./examples/jobqueue
//	go run ./examples/jobqueue --endpoints host1:2379,host2:2379 --db /path/to/jobs.db --names node-1
//
// A job takes long, so it runs under a lock and without an open transaction. Its result is written by a guarded
// transaction. One of the two workers loses its lock in the middle of job 2, and does not notice:
//
//	 time  who       what                                                                   token
//	0.16s  B         begins job 1, invoice of March                                             4
//	0.26s  B         has finished job 1                                                         4
//	0.26s  B         begins job 2, invoice of April                                             4
//	0.26s  B         loses its lease, and does not notice                                       4
//	1.27s  A         begins job 2, invoice of April                                             5
//	1.37s  A         has finished job 2                                                         5
//	1.37s  A         begins job 3, dunning letter                                               5
//	1.37s  B         job 2: its result is REFUSED                                               4
//	1.37s  B         has lost the lock, and queues again
//	1.47s  A         has finished job 3                                                         5
//	1.47s  A         begins job 4, annual report                                                5
//	1.57s  A         has finished job 4                                                         5
//	1.57s  A         finds no job left                                                          5
//	1.57s  B         finds no job left                                                          8
//	1.57s  database  job 2 has the newer result: by A
//
// Without the guard the late result would have replaced the newer one.
//
// queue.go is the table and its guard, this file the workers. For jobs that need no order, and whose work is in one
// transaction, a database needs no lock: see docs/choosing.md.
package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

var (
	names = flag.String("names", "A,B", "comma-separated `names` of the workers in this process")
	path  = flag.String("db", "", "SQLite `file` of the jobs (default: a temporary one)")
	takes = flag.Duration("takes", 100*time.Millisecond, "how long a job takes")
	ttl   = flag.Duration("ttl", session.DefaultTTL, "how long a worker that crashes keeps the lock")
)

func main() { demo.Main(run) }

func run(ctx context.Context, d *demo.Demo) error {
	if *path == "" {
		dir, err := os.MkdirTemp("", "jobqueue-example")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		*path = filepath.Join(dir, "jobs.db")
	}
	q, err := openQueue(ctx, *path)
	if err != nil {
		return err
	}
	defer q.db.Close()
	d.Header()
	workers := strings.Split(*names, ",")
	all, together := errgroup.WithContext(ctx)
	trouble := &trouble{Demo: d, ctx: together, redone: make(chan struct{})}
	trouble.happened.Store(len(workers) == 1) // no other worker would do the job again
	for _, name := range workers {
		all.Go(func() error { return (&worker{d, q, name, trouble}).run(together) })
	}
	if err := all.Wait(); err != nil {
		return err
	}
	return trouble.check(ctx, q)
}

type worker struct {
	*demo.Demo
	queue   *queue
	name    string
	trouble *trouble
}

// run works until no job is left. A worker of yours would wait for the next one.
func (w *worker) run(ctx context.Context) error {
	sess, err := session.New(ctx, w.Client, session.Options{
		Owner: w.name, TTL: *ttl, Logger: slog.New(slog.DiscardHandler), // the rows tell it
	})
	if err != nil {
		return err
	}
	defer sess.Close(ctx)
	return w.queueUp(ctx, sess)
}

// queueUp works under one lock after the other. Whatever became of a job's result, the next holder finds it in the
// table.
func (w *worker) queueUp(ctx context.Context, sess *session.Session) error {
	mu := locker.NewMutex(sess, "examples/jobs")
	for {
		err := mu.Do(ctx, w.workOff)
		switch {
		case errors.Is(err, holdfast.ErrLost):
			w.Row(w.name, 0, demo.Plain, "has lost the lock, and queues again")
		case errors.Is(err, holdfast.ErrSuspended): // Do waits until the session is connected again
			w.Row(w.name, 0, demo.Plain, "is cut off from etcd, and queues again")
		default:
			return err
		}
	}
}

// workOff does job by job while it holds the lock.
func (w *worker) workOff(ctx context.Context, lk *locker.Lock) error {
	for {
		j, found, err := w.queue.next(ctx)
		if err != nil {
			return err
		}
		if !found {
			w.Row(w.name, lk.Token(), demo.Plain, "finds no job left")
			return nil
		}
		w.Row(w.name, lk.Token(), demo.Plain, "begins job %d, %s", j.ID, j.Task)
		if err := w.do(ctx, lk, j); err != nil {
			return err
		}
		if err := w.queue.finish(ctx, lk, j, "by "+w.name); err != nil {
			if errors.Is(err, holdfast.ErrLost) || errors.Is(err, fencing.ErrStale) {
				w.Row(w.name, lk.Token(), demo.Good, "job %d: its result is REFUSED", j.ID)
			}
			return err
		}
		w.Row(w.name, lk.Token(), demo.Plain, "has finished job %d", j.ID)
		w.trouble.finished(j)
	}
}

// do is the work of a job. It should end when its context does.
func (w *worker) do(ctx context.Context, lk *locker.Lock, j job) error {
	if w.trouble.happens(j) {
		return w.trouble.to(w, lk)
	}
	select {
	case <-time.After(*takes):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
