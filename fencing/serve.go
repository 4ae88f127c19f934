package fencing

import (
	"context"
	"errors"
	"sync/atomic"
)

// Serve runs effect as the effect of s, for a claim that was presented to this
// process: the middle of every server half. What effect gets as its context
// carries the claim ([ClaimFromContext]).
//
// The error is effect's own if it has one, as it is; otherwise that of s, marked
// with [ErrNotDone] if effect did not run. In the second case the caller tells
// its auditor ([AuditRefusal] with ctx), as it knows the peer; s, if it has an
// auditor of its own, does not, so that a refusal is recorded once.
func Serve(ctx context.Context, s Store, resource string, c Claim, effect func(ctx context.Context) error) error {
	e := &served{claimContext: claimContext{ctx, c}, effect: effect}
	e.recorded.Store(true)
	err := s.Do(e, resource, c, e.run)
	switch {
	case e.err != nil:
		return e.err
	case e.ran:
		return err
	case err == nil:
		err = errNotRun
	}
	if errors.Is(err, ErrNotDone) {
		return err
	}
	return NotDone(err)
}

var errNotRun = errors.New("fencing: the store returned nil without running the effect")

// served is one call of Serve, and the context that it gives to the store.
type served struct {
	claimContext
	effect func(ctx context.Context) error
	ran    bool
	err    error // of effect

	// recorded says that the caller of Serve records what the store refuses, so
	// that AuditRefusal must not. Not so within the effect: what another guard
	// refuses there is not returned by Serve.
	recorded atomic.Bool
}

type servedKey struct{}

func (e *served) Value(key any) any {
	if key == (servedKey{}) {
		return e
	}
	return e.claimContext.Value(key)
}

func (e *served) run(ctx context.Context) error {
	e.ran = true
	e.recorded.Store(false)
	e.err = e.effect(ctx)
	e.recorded.Store(true)
	return e.err
}

// recordedOutside reports whether a refusal under ctx is recorded by the caller
// of Serve.
func recordedOutside(ctx context.Context) bool {
	e, ok := ctx.Value(servedKey{}).(*served)
	return ok && e.recorded.Load()
}
