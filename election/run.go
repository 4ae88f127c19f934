package election

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
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
// Errors: a *view.AcquireError if fn was not called; fn's error, joined with the *holdfast.LostError if the term was
// lost before fn returned, even if fn returned nil; ErrNotDrained, with the reason why the term ended, if fn is still
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
	t.rethrow(o)
	return hold.Join(o.err, o.lost)
}

// Run leads term after term until ctx ends: it campaigns, calls fn as RunWhileLeader does, resigns, pauses, and
// campaigns again. What follows depends on how fn ended:
//
//   - It returned nil, or its term was lost or resigned: the next term. A late error of fn is logged.
//   - It returned an error while its context was alive: Run resigns and returns it. If its term lasted less than 1 s,
//     the next call on this session and election begins when the second is over: "for { el.Run(…) }" makes no storm of
//     terms.
//   - A suspension has ended its context, under Options.CancelOnSuspended: Run resigns once etcd answers, and the next
//     term follows.
//   - It did not return within Options.DrainTimeout: the next campaign, once it has.
//
// A failed campaign is logged and retried, unless a retry cannot succeed: bad arguments, holdfast.ErrClosed,
// holdfast.ErrReentrant, and a loss under session.Options.StayLost are returned as a *view.AcquireError.
//
// When ctx ends, Run waits for fn, resigns, and returns ctx's error; or fn's, if fn was running and returned a
// different one; or ErrNotDrained.
func (e *Election) Run(ctx context.Context, fn func(context.Context, *Term) error) error {
	if err := e.validateRun(ctx, fn); err != nil {
		return e.failed(0, err)
	}
	policy := e.opts.Retry
	pauses := retry.NewPauses(policy.Initial, policy.Max, policy.Rand)
	for {
		led, err := e.lead(ctx, fn)
		if err != nil {
			return err
		}
		if led >= steadyTerm {
			pauses.Reset()
		}
		lease.Sleep(ctx, pauses.NextBackOff())
	}
}

// lead leads one term and returns how long it lasted, 0 if the campaign has failed. An error ends Run.
func (e *Election) lead(ctx context.Context, fn func(context.Context, *Term) error) (led time.Duration, _ error) {
	t, err := e.elect(ctx)
	switch {
	case err == nil:
	case ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, ErrNotDrained):
		return 0, retry.ContextErr(ctx) // it ended while this candidate waited
	case ctx.Err() != nil || permanent(err):
		return 0, err
	default:
		e.log().Warn("holdfast: campaign failed; retrying", "error", err)
		return 0, nil
	}
	defer t.turn.done()
	elected := time.Now()
	t.log().Info("holdfast: elected", "lease", names.Lease(t.Lease()))
	o := t.call(ctx, fn)
	if errors.Is(t.Check(), holdfast.ErrReleased) { // the auditor reports losses
		t.log().Info("holdfast: resigned")
	}
	t.rethrow(o)

	led = time.Since(elected)
	switch {
	case o.abandoned && ctx.Err() != nil:
		return led, o.err
	case o.abandoned: // the turn is free when fn has returned: the next campaign waits for that
		return led, nil
	case o.err != nil && o.ended == nil && o.lost == nil:
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
// term's turn. An error is a *view.AcquireError, and leaves no turn to end.
func (e *Election) elect(ctx context.Context) (*Term, error) {
	start := time.Now()
	turn, err := e.takeTurn(ctx)
	if err != nil {
		return nil, e.failed(time.Since(start), err)
	}
	for {
		t, err := e.Campaign(ctx)
		if err != nil {
			turn.done()
			return nil, err
		}
		if t.hold.Live() {
			t.turn = turn
			return t, nil
		}
		// It was lost while the auditor ran. No function starts in a lost term.
		_ = t.hold.ReleaseAfterWork(ctx)
	}
}

// logFailure logs what a function returned after its context had ended, unless the error only reports the end.
func (t *Term) logFailure(o outcome) {
	if o.err == nil || isContextEnd(o.err, o.ended) {
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
	return errors.As(err, &name) || errors.As(err, &argument) ||
		errors.Is(err, holdfast.ErrClosed) || errors.Is(err, holdfast.ErrReentrant) || errors.Is(err, holdfast.ErrLost)
}
