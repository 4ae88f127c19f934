package fencing

import "context"

// Store is a guard. It keeps a mark per resource, the largest admitted token, and no effect with a smaller
// token comes after an effect with a larger token. It either raises the mark atomically with the effect, or
// holds the resource exclusively from the comparison to the end of the effect. Otherwise:
//
//	token 5 is admitted, and its process pauses
//	token 7 is admitted, and writes
//	the process of token 5 goes on, and overwrites what token 7 has written
//
// A Store is safe for concurrent use.
type Store interface {
	// Do runs effect if c's token is not below the mark of the resource, and sets the mark to the
	// token. effect runs on the caller's goroutine; its context is derived from ctx and carries what
	// the store provides, such as a transaction. What it leaves running is not guarded.
	//
	// If effect does not run, errors.Is finds
	//
	//   - [ErrStale], a *[MarkError]: the mark is above the token;
	//   - [ErrOtherName], an *[OtherNameError]: the mark is of another lock. (A store without names
	//     must keep one mark per resource and name.)
	//   - [ErrBadClaim], a *[ClaimError]: c or resource is malformed, or the epoch is too far above
	//     the mark ([ErrEpochStep]);
	//   - [ErrFull], ctx's error, or that of the storage.
	//
	// If effect ran, Do returns its error, or that of a commit after it. It must commit nothing if
	// effect failed; if effect may have committed something by itself, the error Is
	// holdfast.ErrOutcomeUnknown. If Do knows that nothing was done, the error Is [ErrNotDone].
	// Refusals are recorded by Do's caller.
	Do(ctx context.Context, resource string, c Claim, effect func(ctx context.Context) error) error
}

// Filter keeps marks like a [Store] but does not cover the effect: a holder may pause
// between Admit and its effect.
type Filter interface {
	// Admit returns nil if c's token is not below the mark of the resource, and sets
	// the mark to the token. Errors are those of Store.Do.
	Admit(ctx context.Context, resource string, c Claim) error
}

// MaxResource is the longest name of a resource, in bytes.
const MaxResource = 1024
