// Cron runs a job once in each slot of time, in any number of processes:
//
//	go run ./examples/cron
//	go run ./examples/cron --endpoints host1:2379,host2:2379 --names node-1 --slots 0   # on each machine, with its name
//
// Three schedulers, each with a session of its own as a process has, look after the same slots, one in each second. A
// slot is run by the scheduler whose turn comes first; the others find in etcd that it has been run:
//
//	 time  who       what                                                                   token
//	0.12s  B         10:41:23: runs the job                                                     5
//	0.32s  A         10:41:23: finds that it has been run                                       6
//	0.32s  C         10:41:23: finds that it has been run                                       7
//	0.40s  A         10:41:24: runs the job                                                    12
//	0.61s  B         10:41:24: finds that it has been run                                      13
//	0.61s  C         10:41:24: finds that it has been run                                      14
//	1.40s  B         10:41:25: runs the job                                                    19
//	1.61s  A         10:41:25: finds that it has been run                                      20
//	1.61s  C         10:41:25: finds that it has been run                                      21
//
// A crash in the job leaves no record, so the next scheduler in the queue runs the slot again, once the lease of the
// crashed one has ended. docs/cron.md has the other ways, and says when to take which.
package main

import (
	"context"
	"errors"
	"flag"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/lastrun"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

var (
	names    = flag.String("names", "A,B,C", "comma-separated `names` of the schedulers in this process")
	interval = flag.Duration("interval", time.Second, "of the slots, in whole seconds")
	slots    = flag.Int("slots", 3, "how many slots to look after; 0: until Ctrl-C")
	takes    = flag.Duration("takes", 200*time.Millisecond, "how long the job takes")
	ttl      = flag.Duration("ttl", session.DefaultTTL, "how long a scheduler that crashes keeps its place")
)

const lockName = "examples/cron"

func main() { demo.Main(run) }

func run(ctx context.Context, d *demo.Demo) error {
	if *interval < time.Second || *interval%time.Second != 0 {
		return errors.New("--interval must be whole seconds")
	}
	d.Header()
	// At the start it is the present slot, which may not have been run. Slots of local time are in docs/cron.md.
	first := time.Now().UTC().Truncate(*interval)
	all, ctx := errgroup.WithContext(ctx)
	for name := range strings.SplitSeq(*names, ",") {
		all.Go(func() error { return schedule(ctx, d, name, first) })
	}
	return all.Wait()
}

// schedule is one scheduler. It looks after slot by slot: after an outage of etcd it is late, and catches up. A slot is
// left out if its job has failed in each scheduler, or if a later one was run first.
func schedule(ctx context.Context, d *demo.Demo, name string, first time.Time) error {
	sess, err := session.New(ctx, d.Client, session.Options{Owner: name, TTL: *ttl})
	if err != nil {
		return err
	}
	defer sess.Close(ctx)
	slot := first
	for n := 0; n < *slots || *slots == 0; n++ {
		select {
		case <-time.After(time.Until(slot)):
		case <-ctx.Done(): // asked to end
			return nil
		}
		if err := runSlot(ctx, d, sess, name, slot); err != nil {
			d.Row(name, 0, demo.Bad, "%s: %v", clock(slot), err) // the next in the queue runs the slot
		}
		slot = slot.Add(*interval)
	}
	return nil
}

// runSlot waits for its turn, and runs the job unless the slot has been run.
func runSlot(ctx context.Context, d *demo.Demo, sess *session.Session, name string, slot time.Time) error {
	mu := locker.NewMutex(sess, lockName)
	return mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error { // ctx ends when the lock is lost
		this := slot.UTC().Format(time.RFC3339) // such texts are in the order of their times
		last, err := lastrun.Read(ctx, sess, holdfast.KindLock, mu.Name())
		if err != nil {
			return err
		}
		if last.Slot >= this {
			d.Row(name, lk.Token(), demo.Dim, "%s: finds that it has been run", clock(slot))
			return nil
		}
		d.Row(name, lk.Token(), demo.Good, "%s: runs the job", clock(slot))
		if err := job(ctx, slot); err != nil {
			return err
		}
		return lastrun.Record(ctx, lk, this, 2**interval) // not before: a crash in the job leaves no record
	})
}

// job is what has to be done once in each slot. It ends when ctx does.
func job(ctx context.Context, _ time.Time) error {
	select {
	case <-time.After(*takes):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func clock(slot time.Time) string { return slot.UTC().Format(time.TimeOnly) }
