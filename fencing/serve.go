package fencing

import (
	"context"
	"errors"
	"sync/atomic"
)

// Serve runs effect as the effect of s, for a claim that peer has presented to
// this process: the middle of every server half. What effect gets as its context
// carries the claim ([ClaimFromContext]).
//
// The error is effect's own if it has one, as it is; otherwise that of s, marked
// with [ErrNotDone] if effect did not run. A refusal is told to a (nil:
// slog.Default()) once, with peer, also where s has an auditor of its own.
func Serve(ctx context.Context, s Store, resource string, c Claim, peer string, a Auditor, effect func(ctx context.Context) error) error {
	e := &served{claimContext: claimContext{ctx, c}, effect: effect}
	e.recorded.Store(true)
	err := s.Do(e, resource, c, e.run)
	switch {
	case e.err != nil:
		return e.err
	case !e.ran && err == nil:
		err = errNotRun
	}
	if !e.ran && !errors.Is(err, ErrNotDone) {
		err = NotDone(err)
	}
	e.recorded.Store(false)
	AuditRefusal(e, a, resource, c, peer, err)
	return err
}

var errNotRun = errors.New("fencing: the store returned nil without running the effect")

// served is one call of Serve, and the context that it gives to the store.
type served struct {
	claimContext
	effect func(ctx context.Context) error
	ran    bool
	err    error // of effect

	// recorded says that Serve records what the store refuses, so that
	// AuditRefusal must not. Not so within the effect: what another guard
	// refuses there never comes to Serve.
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

// recordedByServe reports whether a refusal under ctx is recorded further out.
func recordedByServe(ctx context.Context) bool {
	e, ok := ctx.Value(servedKey{}).(*served)
	return ok && e.recorded.Load()
}
