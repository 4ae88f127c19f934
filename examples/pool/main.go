// Pool has workers of which only so many are at work at a time, in all processes together: for an API or a database
// that bears no more.
//
//	go run ./examples/pool
//	go run ./examples/pool --endpoints host1:2379,host2:2379 --names node-1   # on each machine, with its name
//
// Three workers, each with a session of its own as a process has, share a semaphore of two permits. A job takes one of
// them, and the last job of each worker both:
//
//	 time  who       what                                                                   token
//	0.22s  C         begins job 1 with 1 of 2 permits; in use: 1
//	0.23s  B         begins job 1 with 1 of 2 permits; in use: 2
//	0.43s  A         begins job 1 with 1 of 2 permits; in use: 1
//	0.43s  C         begins job 2 with 1 of 2 permits; in use: 2
//	0.64s  B         begins job 2 with 1 of 2 permits; in use: 1
//	0.84s  C         begins job 3 with 2 of 2 permits; in use: 2
//	1.04s  A         begins job 2 with 1 of 2 permits; in use: 1
//	1.25s  B         begins job 3 with 2 of 2 permits; in use: 2
//	1.45s  A         begins job 3 with 2 of 2 permits; in use: 2
//
// The permit of a worker that crashes is free when its lease has ended. A permit has no token, since several are held
// at a time: what must not be written late needs a lock, or an etcdfence.Writer, which compares the permit's entry.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

var (
	names = flag.String("names", "A,B,C", "comma-separated `names` of the workers in this process")
	limit = flag.Int("limit", 2, "how many permits there are; the same in all processes")
	jobs  = flag.Int("jobs", 3, "how many jobs each worker has")
	takes = flag.Duration("takes", 200*time.Millisecond, "how long a job takes")
	ttl   = flag.Duration("ttl", session.DefaultTTL, "how long a worker that crashes keeps its permits")
)

func main() { demo.Main(run) }

func run(ctx context.Context, d *demo.Demo) error {
	d.Header()
	all, ctx := errgroup.WithContext(ctx)
	for name := range strings.SplitSeq(*names, ",") {
		all.Go(func() error { return work(ctx, d, name) })
	}
	return all.Wait()
}

// work is one worker. It does its jobs one after the other, each when it has the permits for it.
func work(ctx context.Context, d *demo.Demo, name string) error {
	sess, err := session.New(ctx, d.Client, session.Options{Owner: name, TTL: *ttl})
	if err != nil {
		return err
	}
	defer sess.Close(ctx)
	permits := locker.NewSemaphore(sess, "examples/pool", *limit)
	for n := 1; n <= *jobs; {
		weight := 1
		if n == *jobs { // the last one is a large job
			weight = *limit
		}
		err := permits.Do(ctx, weight, func(ctx context.Context, _ *locker.Permit) error { // ctx ends with the permits
			return job(ctx, d, name, n, weight)
		})
		switch {
		case err == nil:
			n++
		case !errors.Is(err, holdfast.ErrLost):
			return err
		default:
			d.Row(name, 0, demo.Bad, "has lost its permits in job %d, and does it again", n)
		}
	}
	return nil
}

// inUse counts the permits in this process.
var inUse atomic.Int64

// job uses what only so many may use at a time. It ends when ctx does.
func job(ctx context.Context, d *demo.Demo, name string, n, weight int) error {
	used := inUse.Add(int64(weight))
	defer inUse.Add(-int64(weight))
	d.Row(name, 0, demo.Good, "begins job %d with %d of %d permits; in use: %d", n, weight, *limit, used)
	if used > int64(*limit) {
		return fmt.Errorf("%d permits are in use, of %d", used, *limit)
	}
	select {
	case <-time.After(*takes):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
