package election

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/callback"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// steadyTerm is how long a term must last for Run's pauses to start over.
const steadyTerm = time.Second

// RunWhileLeader campaigns, calls fn for one term, and resigns after fn has returned.
//
// fn's context is a child of ctx, carries the term for package fencing, and is canceled when the term is lost;
// context.Cause says why. From then on RunWhileLeader waits for fn for at most Options.DrainTimeout, and the entry
// stays unless the lease is lost. Then the term is lost with holdfast.CauseNotDrained.
//
// Calls of Run and RunWhileLeader on one session and election take turns: the next one queues when the function of the
// one before has returned.
//
// Errors: a *CampaignError if fn was not called; fn's error, joined with the *holdfast.LostError if the term was lost
// before fn returned, even if fn returned nil; ErrNotDrained, with the reason why the term ended, if fn is still
// running. A resignation without a reply is not an error.
//
// fn runs on its own goroutine. A panic or runtime.Goexit in it resigns, and continues on the caller's goroutine.
func (e *Election) RunWhileLeader(ctx context.Context, fn func(context.Context, *Term) error) error {
	if err := e.validateRun(ctx, fn); err != nil {
		return e.failed(0, err)
	}
	t, err := e.elect(ctx)
	if err != nil {
		return err
	}
	defer t.turn.done()
	o := t.call(ctx, fn)
	lost := t.stepDown(ctx, o)
	t.rethrow(o)
	return hold.Join(o.err, lost)
}

// Run leads term after term until ctx ends: it campaigns, calls fn as RunWhileLeader does, resigns, pauses, and
// campaigns again. What follows depends on how fn ended:
//
//   - It returned nil, or its term was lost or resigned: the next term. A late error of fn is logged.
//   - It returned an error while its context was alive: Run resigns and returns it. If its term lasted less than 1 s,
//     the next call on this session and election begins when the second is over: "for { el.Run(…) }" makes no storm of
//     terms.
//   - It was suspended, under Options.CancelOnSuspended: when the suspension has ended and a read finds the entry, fn
//     is called again with the same Term, without OnDeposed and OnElected; otherwise the next term.
//   - It did not return within Options.DrainTimeout: the next campaign, once it has.
//
// A failed campaign is logged and retried, unless a retry cannot succeed: bad arguments, holdfast.ErrClosed,
// holdfast.ErrReentrant, a loss under session.Options.StayLost, an error of Options.Warm, or ErrNotDrained, if Warm
// does not return, are returned as a *CampaignError.
//
// When ctx ends, Run waits for fn, resigns, and returns ctx's error; or fn's, if fn was running and returned a
// different one; or ErrNotDrained. It waits for its callbacks, for at most Options.DrainTimeout.
func (e *Election) Run(ctx context.Context, fn func(context.Context, *Term) error) error {
	if err := e.validateRun(ctx, fn); err != nil {
		return e.failed(0, err)
	}
	policy := e.opts.Retry
	pauses := retry.NewPauses(policy.Initial, policy.Max, policy.Rand)
	r := &run{election: e}
	defer r.finish()
	for {
		led, err := r.term(ctx, fn)
		if err != nil {
			return err
		}
		if led >= steadyTerm {
			pauses.Reset()
		}
		lease.Sleep(ctx, pauses.NextBackOff())
	}
}

// run is one call of Run.
type run struct {
	election *Election
	queue    callback.Queue
}

// term leads one term and returns how long it lasted, 0 if the campaign has failed. An error ends Run.
func (r *run) term(ctx context.Context, fn func(context.Context, *Term) error) (led time.Duration, _ error) {
	t, err := r.election.elect(ctx)
	switch {
	case err == nil:
	case ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, ErrNotDrained):
		return 0, retry.ContextErr(ctx) // it ended while this candidate waited
	case ctx.Err() != nil || permanent(err):
		return 0, err
	default:
		r.election.log().Warn("holdfast: campaign failed; retrying", "error", err)
		return 0, nil
	}
	defer t.turn.done()
	elected, deposed := time.Now(), r.elected(t)
	o := t.call(ctx, fn)
	for o.suspended() && t.resume(ctx, o) {
		o = t.call(ctx, fn)
	}
	lost := t.stepDown(ctx, o)
	deposed() // before the next term, and before a panic continues
	t.rethrow(o)

	led = time.Since(elected)
	switch {
	case o.abandoned && ctx.Err() != nil:
		return led, o.err
	case o.abandoned: // the turn is free when fn has returned: the next campaign waits for that
		return led, nil
	case o.err != nil && o.ended == nil && lost == nil:
		t.turn.keep(steadyTerm - led)
		return led, o.err
	case o.err != nil && o.shutdown:
		return led, o.err
	case ctx.Err() != nil:
		return led, retry.ContextErr(ctx)
	}
	t.logFailure(o)
	return led, nil
}

// elect waits for the turn of this call and wins a term in which its function may run. The caller calls done of the
// term's turn. An error is a *CampaignError, and leaves no turn to end.
func (e *Election) elect(ctx context.Context) (*Term, error) {
	start := time.Now()
	turn, err := e.takeTurn(ctx)
	if err != nil {
		return nil, e.failed(time.Since(start), err)
	}
	for {
		t, err := e.standBy(ctx, turn)
		if err != nil {
			turn.done()
			return nil, err
		}
		if t.hold.Live() {
			t.turn = turn
			return t, nil
		}
		// It was lost while the auditor or Warm ran. No function starts in a lost term.
		_ = t.hold.ReleaseAfterWork(ctx)
	}
}

// resume reports whether to call the function again in the same term, after a suspension ended its context: if the
// session is connected again on the same lease, and a read has found the term's entry.
func (t *Term) resume(ctx context.Context, o outcome) bool {
	if ctx.Err() != nil {
		return false
	}
	if err := t.hold.Resume(ctx); err != nil {
		if t.hold.Live() && ctx.Err() == nil {
			t.log().Warn("holdfast: cannot verify the term after a suspension; resigning", "error", err)
		}
		return false
	}
	t.logFailure(o)
	t.log().Info("holdfast: term kept through a suspension")
	return true
}

// stepDown ends the term after its function has ended, and returns the loss of a term that was lost before.
func (t *Term) stepDown(ctx context.Context, o outcome) *holdfast.LostError {
	if o.abandoned {
		return nil // call has ended the term
	}
	return t.hold.ReleaseAfterWork(ctx)
}

// logFailure logs what a function returned after its context had ended, unless the error only reports the end.
func (t *Term) logFailure(o outcome) {
	if o.abandoned || o.err == nil || isContextEnd(o.err, o.ended) {
		return
	}
	t.log().Warn("holdfast: function failed after its context had ended", "error", o.err, "context_cause", o.ended)
}

func isContextEnd(err, cause error) bool {
	return errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled || cause != nil && errors.Is(err, cause)
}

// permanent reports whether a campaign failed for a reason that no retry can change. A campaign survives the loss of
// its lease, so ErrLost means StayLost.
func permanent(err error) bool {
	var name *holdfast.NameError
	var argument *holdfast.ArgumentError
	var warm *warmError
	return errors.As(err, &name) || errors.As(err, &argument) || errors.As(err, &warm) ||
		errors.Is(err, holdfast.ErrClosed) || errors.Is(err, holdfast.ErrReentrant) || errors.Is(err, holdfast.ErrLost) ||
		errors.Is(err, ErrNotDrained) // Warm goes on: see join
}

// add has the callbacks of this call made one at a time, in order.
func (r *run) add(name string, call func()) {
	r.queue.Add(callback.Call{Callback: name, Log: r.election.log(), Run: call})
}

// elected reports the beginning of t to the log and the callbacks. It reports the end of t when it comes, at the latest
// when the caller calls deposed.
func (r *run) elected(t *Term) (deposed func()) {
	opts := r.election.opts
	t.log().Info("holdfast: elected", "lease", names.Lease(t.Lease()))
	if opts.OnElected != nil {
		r.add("OnElected", func() { opts.OnElected(t) })
	}
	report := sync.OnceFunc(func() {
		reason := t.Check()
		if errors.Is(reason, holdfast.ErrReleased) { // the auditor reports losses
			t.log().Info("holdfast: resigned")
		}
		if opts.OnDeposed != nil {
			r.add("OnDeposed", func() { opts.OnDeposed(t, reason) })
		}
	})
	term, cancel := t.hold.Context(context.Background(), false)
	stop := context.AfterFunc(term, report)
	return func() {
		report()
		stop()
		cancel()
	}
}

// finish waits until all callbacks have returned, for at most DrainTimeout.
func (r *run) finish() {
	drain := time.NewTimer(r.election.opts.drainTimeout())
	defer drain.Stop()
	select {
	case <-r.queue.Idle():
	case <-drain.C:
		running, pending := r.queue.Running()
		r.election.log().Warn("holdfast: Run returns while a callback is still running",
			"callback", running, "pending", pending)
	}
}
