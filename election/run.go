package election

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// steadyTerm is how long a term must last for Run's pauses to start over.
const steadyTerm = time.Second

// RunWhileLeader campaigns, calls fn for one term, and resigns after fn has returned.
//
// fn's context is a child of ctx, carries the term for package fencing, and is canceled when the term is lost;
// context.Cause says why. From then on RunWhileLeader waits for fn for at most Options.DrainTimeout, and a term that is
// not lost keeps its entry. After that the term is lost with holdfast.CauseNotDrained.
//
// Errors: a *CampaignError if fn was not called; fn's error, joined with the *holdfast.LostError if the term was lost
// before fn returned, even if fn returned nil; ErrNotDrained, with the reason why the term ended, if fn is still
// running. A resignation that etcd does not confirm is not an error.
//
// A panic or runtime.Goexit in fn, which runs on its own goroutine, resigns and continues on the caller's goroutine.
func (e *Election) RunWhileLeader(ctx context.Context, value string, fn func(context.Context, *Term) error) error {
	if err := e.validateRun(ctx, value, fn); err != nil {
		return e.failed(0, err)
	}
	t, err := e.elect(ctx, value)
	if err != nil {
		return err
	}
	o := t.call(ctx, fn)
	lost := t.stepDown(ctx, o)
	t.rethrow(o)
	return hold.Join(o.err, lost)
}

// Run leads term after term until ctx ends: it campaigns, calls fn as RunWhileLeader does, resigns, pauses, and
// campaigns again. What follows depends on how fn ended:
//
//   - It returned nil, or its term was lost or resigned: the next term. A late error of fn is logged.
//   - It returned an error while its context was alive: Run resigns and returns it. If that was within 1 s, the next
//     Run of this session pauses first, as Options.Retry says: for longer each time, until a term lasts 1 s.
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
func (e *Election) Run(ctx context.Context, value string, fn func(context.Context, *Term) error) error {
	if err := e.validateRun(ctx, value, fn); err != nil {
		return e.failed(0, err)
	}
	policy := e.opts.Retry
	pauses := retry.NewPauses(policy.Initial, policy.Max, policy.Multiplier, policy.Rand)
	r := &run{election: e}
	defer r.finish()
	defer r.watchLeaders(ctx)()

	termsOf(e).pause(ctx)
	for ; ; lease.Sleep(ctx, pauses.NextBackOff()) {
		t, err := e.elect(ctx, value)
		switch {
		case err == nil:
		case ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, ErrNotDrained):
			return backoff.ContextErr(ctx) // it ended while this candidate waited
		case ctx.Err() != nil || permanent(err):
			return err
		default:
			e.log().Warn("holdfast: campaign failed; retrying", "error", err)
			continue
		}
		elected := time.Now()
		deposed := r.elected(t)

		o := t.call(ctx, fn)
		for o.suspended() && t.resume(ctx, o) {
			o = t.call(ctx, fn)
		}
		lost := t.stepDown(ctx, o)
		deposed() // before the next term, and before a panic continues
		t.rethrow(o)

		switch {
		case o.abandoned && ctx.Err() != nil:
			return o.err
		case o.abandoned: // elect waits until fn has returned
		case o.err != nil && o.ended == nil && lost == nil:
			termsOf(e).failed(time.Since(elected), policy)
			return o.err
		case o.err != nil && o.shutdown:
			return o.err
		}
		if ctx.Err() != nil {
			return backoff.ContextErr(ctx)
		}
		t.logFailure(o)
		if time.Since(elected) >= steadyTerm {
			pauses.Reset()
		}
	}
}

// elect wins a term in which a function may run: none of an earlier term of this
// session is running.
func (e *Election) elect(ctx context.Context, value string) (_ *Term, err error) {
	start := time.Now()
	if err := termsOf(e).begin(ctx, e.opts.Warm != nil); err != nil {
		return nil, e.failed(time.Since(start), err)
	}
	defer func() {
		if err != nil {
			termsOf(e).end()
		} // else stepDown does
	}()
	for {
		// Wait before campaigning: a candidate that must not lead yet would hold up
		// those queued behind it.
		if err := termsOf(e).waitForStragglers(ctx); err != nil {
			return nil, e.failed(time.Since(start), err)
		}
		t, err := e.standBy(ctx, value)
		if err != nil {
			return nil, err
		}
		if termsOf(e).enter(t) {
			return t, nil
		}
		// The term is lost already; or, while this call was queued, another term of
		// this session was lost and its function still runs. Let others lead.
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
	if !termsOf(t.election).enter(t) {
		return false // lost just now
	}
	t.logFailure(o)
	t.log().Info("holdfast: term kept through a suspension")
	return true
}

// stepDown ends the term after its function has ended, and returns the loss if the
// term was lost before that.
func (t *Term) stepDown(ctx context.Context, o outcome) *holdfast.LostError {
	defer termsOf(t.election).end()
	if o.abandoned {
		return nil // call has ended the term
	}
	return t.hold.ReleaseAfterWork(ctx)
}

// logFailure logs an error that a function returned after its context had ended,
// unless the error only reports that end.
func (t *Term) logFailure(o outcome) {
	if o.abandoned || o.err == nil || isContextEnd(o.err, o.ended) {
		return
	}
	t.log().Warn("holdfast: function failed after its context had ended", "error", o.err, "context_cause", o.ended)
}

func isContextEnd(err, cause error) bool {
	return errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled || cause != nil && errors.Is(err, cause)
}

// permanent reports whether a campaign failed for a reason that a retry cannot
// change. A campaign survives the loss of its lease, so ErrLost means StayLost.
func permanent(err error) bool {
	var name *holdfast.NameError
	var argument *holdfast.ArgumentError
	var warm *warmError
	return errors.As(err, &name) || errors.As(err, &argument) || errors.As(err, &warm) ||
		errors.Is(err, holdfast.ErrClosed) || errors.Is(err, holdfast.ErrReentrant) || errors.Is(err, holdfast.ErrLost) ||
		errors.Is(err, ErrNotDrained) // Warm goes on: see join
}
