// Package stalewriter has two processes compete for a lock and write under it. The holder is
// stopped at a random moment, for longer than its lease lives, and writes on as if nothing had
// happened: a guard must refuse it once the other process has written.
//
//	go test -race ./tests/sqlfence ./tests/robustness -run StaleWriterOf -pauses=200 -timeout 1h
package stalewriter

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
)

// The names of the processes.
const (
	nameA = "stale writer A"
	nameB = "stale writer B"
)

// IsName reports whether an argument of a process is the name of one of those that Run starts.
func IsName(arg string) bool { return arg == nameA || arg == nameB }

// Pauses is the flag -pauses.
func Pauses() int { return *pauses }

var pauses = flag.Int("pauses", 2, "how often the tests of stale writers stop a process, for each way of writing")

// Job tells a process what to do.
type Job struct {
	Endpoints []string // of etcd
	Name      string   // of the lock and the resource
	Way       string   // of writing
	Address   string   // where to
	Detail    int      // of the way
}

// Way is a way of writing under test.
type Way struct {
	Name string
	A, B Job // of the two processes

	// Read returns the counter, and all writes in any order.
	Read func(t *testing.T) (counter int, writes []Record)
}

// Record is what a write has left.
type Record struct {
	Token holdfast.Token
	Value int // to which it set the counter
}

// Run stops the processes of all ways at the same time, and then judges what they have written.
func Run(t *testing.T, ways ...Way) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute+time.Duration(*pauses)*10*time.Second,
		errors.New("the test takes too long"))
	defer cancel()
	outcomes := make([]outcome, len(ways))
	var all sync.WaitGroup
	for i, w := range ways {
		all.Go(func() { outcomes[i] = w.run(ctx) })
	}
	all.Wait()
	for i, w := range ways {
		t.Run(w.Name, func(t *testing.T) { w.judge(t, outcomes[i]) })
	}
}

type outcome struct {
	Event      // sums of both processes
	within int // stops that held up the other process, because they were in a transaction
	err    error
}

func (w *Way) run(ctx context.Context) (o outcome) {
	holder, err := child.Start[Event](nameA, w.A)
	if err != nil {
		return outcome{err: err}
	}
	defer func() { o.err = child.KillAll(o.err, holder) }()
	if _, o.err = holder.Await(ctx, hasWritten); o.err != nil {
		return o
	}
	waiter, err := child.Start[Event](nameB, w.B)
	if err != nil {
		return outcome{err: err}
	}
	defer func() { o.err = child.KillAll(o.err, waiter) }()
	for range *pauses {
		waited, err := pause(ctx, holder, waiter)
		if err != nil {
			o.err = err
			return o
		}
		if waited {
			o.within++
		}
		holder, waiter = waiter, holder
	}
	for _, p := range []*child.Child[Event]{holder, waiter} {
		if o.err = p.Tell(finish); o.err != nil {
			return o
		}
	}
	for _, p := range []*child.Child[Event]{holder, waiter} {
		ev, err := p.Await(ctx, isDone)
		for i := 0; err != nil && i < 4; i++ { // it may have reported something else before
			ev, err = p.Await(ctx, isDone)
		}
		if o.err = err; err != nil {
			return o
		}
		o.Writes, o.Unknown = o.Writes+ev.Writes, o.Unknown+ev.Unknown
	}
	return o
}

// pause stops the holder until its lease has ended and the other process has written, unless that
// waits for a transaction of the holder.
func pause(ctx context.Context, holder, waiter *child.Child[Event]) (waited bool, _ error) {
	moment := time.NewTimer(rand.N(60 * time.Millisecond)) // the fault comes at a random moment
	<-moment.C
	if err := holder.Stop(ctx); err != nil {
		return false, err
	}
	soon, cancel := context.WithTimeout(ctx, 2*ttl)
	_, waits := waiter.Await(soon, hasWritten)
	cancel()
	if err := holder.Continue(); err != nil {
		return false, err
	}
	if waits != nil {
		if _, err := waiter.Await(ctx, hasWritten); err != nil {
			return false, err
		}
	}
	ctx, cancel = context.WithTimeoutCause(ctx, 20*time.Second,
		errors.New("it writes on after the other process has written"))
	defer cancel()
	_, err := holder.Await(ctx, isRefused)
	return waits != nil, err
}

func (w *Way) judge(t *testing.T, o outcome) {
	if o.err != nil {
		t.Fatal(o.err)
	}
	counter, writes := w.Read(t)
	slices.SortFunc(writes, func(a, b Record) int { return a.Value - b.Value })
	for i, r := range writes {
		if r.Value != i+1 {
			t.Fatalf("write %d set the counter to %d: an update is lost", i+1, r.Value)
		}
		if i > 0 && r.Token < writes[i-1].Token {
			t.Errorf("write %d: token %v has written after %v", i+1, r.Token, writes[i-1].Token)
		}
	}
	if n := len(writes); n != counter || n < o.Writes || n > o.Writes+o.Unknown {
		t.Errorf("%d writes succeeded, %d more are unknown; there are %d, and the counter is %d",
			o.Writes, o.Unknown, n, counter)
	}
	t.Logf("%d pauses, %d of them held up the other process; %d writes, %d more of unknown outcome",
		*pauses, o.within, o.Writes, o.Unknown)
}
