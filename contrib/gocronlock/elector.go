package gocronlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
)

const defaultQuiet = time.Second

// ErrNotLeader is the error of IsLeader, and of a task made by Elector.Task, while another scheduler leads.
var ErrNotLeader = errors.New("this scheduler does not lead")

// ElectorOptions are the options of an Elector. The zero value of each field is its default.
type ElectorOptions struct {
	// Quiet is how long a new leader runs no job. Default 1 s. The leader before it may have run the slot that is
	// due just now: Quiet must be longer than the difference between the clocks of two schedulers. A slot within that
	// time is missed if that leader had ended before it.
	Quiet time.Duration
}

// Elector makes one scheduler run all jobs: pass it to gocron.WithDistributedElector, and call Run beside the
// scheduler. It is a gocron.Elector, and safe for concurrent use.
type Elector struct {
	election *election.Election
	opts     ElectorOptions

	mu    sync.Mutex // protects the fields below
	term  *election.Term
	since time.Time // when the term began here
	ctx   context.Context
	tasks *sync.WaitGroup // of the term
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector for an election, made by election.New and perhaps With. The error is a
// *holdfast.ArgumentError.
func NewElector(el *election.Election, o ElectorOptions) (*Elector, error) {
	o.Quiet = cmp.Or(o.Quiet, defaultQuiet)
	switch {
	case el == nil:
		return nil, &holdfast.ArgumentError{Argument: "el", Reason: "is nil"}
	case o.Quiet < 0:
		return nil, &holdfast.ArgumentError{Argument: "ElectorOptions.Quiet", Reason: "is negative"}
	}
	return &Elector{election: el, opts: o}, nil
}

// Run leads term after term until ctx ends, as Election.Run does, whose errors it returns. While it does not run, no
// job runs here. When a term ends, the contexts of its tasks are canceled; Run waits for them, at most for the
// election's DrainTimeout, before another scheduler may lead.
func (e *Elector) Run(ctx context.Context) error {
	return e.election.Run(ctx, func(ctx context.Context, term *election.Term) error {
		tasks := new(sync.WaitGroup)
		e.set(ctx, term, tasks)
		<-ctx.Done()
		e.set(ctx, nil, nil) // after this no task is added
		tasks.Wait()
		return nil
	})
}

func (e *Elector) set(ctx context.Context, term *election.Term, tasks *sync.WaitGroup) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ctx, e.term, e.tasks, e.since = ctx, term, tasks, time.Now()
}

// IsLeader returns nil if this scheduler may run a job now; gocron calls it. Otherwise the error Is ErrNotLeader, also
// within Quiet, and while the session is suspended, as after a short outage of etcd. It sends nothing.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	term, since := e.term, e.since
	e.mu.Unlock()
	switch {
	case term == nil:
		return fmt.Errorf("election %q: %w", e.election.Name(), ErrNotLeader)
	case time.Since(since) < e.opts.Quiet:
		return fmt.Errorf("election %q: %w yet: the term has just begun", e.election.Name(), ErrNotLeader)
	}
	if err := term.Check(); err != nil {
		return fmt.Errorf("election %q: %w: %w", e.election.Name(), ErrNotLeader, err)
	}
	return nil
}

// Task returns a task that belongs to the term in which it is started. fn is called with the term, for its token, and
// with a context that is canceled when the term ends, with the reason as its context.Cause, and when gocron ends the
// job. It carries the term for package fencing, and may have ended before fn is called. Run does not resign before fn
// has returned.
//
// The error of the task, which gocron passes to AfterJobRunsWithError, is fn's, joined with the *holdfast.LostError if
// the term was lost before fn returned. It Is ErrNotLeader if Run had no term; then fn was not called.
func (e *Elector) Task(fn func(ctx context.Context, term *election.Term) error) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		e.mu.Lock()
		term, leading, tasks := e.term, e.ctx, e.tasks
		if term == nil {
			e.mu.Unlock()
			return fmt.Errorf("election %q: %w", e.election.Name(), ErrNotLeader)
		}
		tasks.Add(1) // under mu: Run's function waits after it has reset the field
		e.mu.Unlock()
		defer tasks.Done()
		ctx, cancel := term.WithContext(ctx)
		defer cancel()
		ctx, end := context.WithCancelCause(ctx)
		defer end(nil)
		defer context.AfterFunc(leading, func() { end(context.Cause(leading)) })()
		return withLoss(fn(ctx, term), term.Check())
	})
}
