package fencing

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/names"
)

// Store keeps, for each resource, the largest token it has seen: the resource's
// mark. It is a guard: its contract is that the effect and the mark cannot come
// apart. That is so in one of two ways, and an implementation says in which:
//
//   - the mark is raised atomically with the effect (a transaction of the
//     database that has both), or
//   - the resource is held exclusively from the comparison to the end of the
//     effect.
//
// Raising the mark merely before the effect is not enough: token 5 passes and
// its process is paused, 7 passes and writes, 5 goes on and writes. What does
// only that is a [Filter].
//
// A Store may be used by any number of goroutines.
type Store interface {
	// Do compares c with the mark of the resource. A token as large as the mark
	// or larger is admitted: effect runs, on the caller's goroutine, and the
	// mark is c's token from then on. effect gets a context that is, or comes
	// from, ctx, and that carries what the store has for it (a transaction).
	// It must be over when it returns: what it leaves running is not guarded.
	//
	// Otherwise effect does not run and the error Is
	//
	//   - [ErrStale], a *[MarkError], if the mark is above the token;
	//   - [ErrOtherName], a *[OtherNameError], if the mark was set under another name
	//     (an implementation that does not record names must keep one mark for
	//     each pair of resource and name: never may tokens of different names
	//     be compared);
	//   - [ErrBadClaim] if c or resource cannot be used, [ErrNoToken] too for a
	//     token of zero, [ErrEpochStep] too for a token far above the mark;
	//   - [ErrFull], ctx's error, or what the store's own storage says.
	//
	// When effect has run, Do returns its error, and an implementation whose
	// commit follows on the effect may return that one's. Such an implementation
	// commits nothing if effect returns an error. Where it knows that nothing
	// was done, its error Is [ErrNotDone] (see [NotDone]).
	Do(ctx context.Context, resource string, c Claim, effect func(ctx context.Context) error) error
}

// Filter keeps marks like a [Store], but does not know of the effect: what it
// admits may be overtaken before it has an effect. It keeps out a holder that
// has been stale for a while, and not one that is paused between the admission
// and the effect.
//
// Use one where the resource itself makes the comparison that counts, to turn
// late holders away early; or knowing what is missing.
type Filter interface {
	// Admit raises the mark of the resource to c's token and returns nil, if
	// the mark is not above it. Its errors are those of Store.Do.
	Admit(ctx context.Context, resource string, c Claim) error
}

// MaxResource bounds the name of a resource, in bytes.
const MaxResource = 1024

// ErrFull is returned by a bounded store that would have to forget the mark of
// one resource to keep that of another. A mark that is forgotten is an open
// door, so it refuses. Nothing was done.
var ErrFull = NotDone(errors.New("store of fencing tokens is full"))

// CheckName returns a *[OtherNameError] unless c is of the lock named want.
func (c Claim) CheckName(resource, want string) error {
	if c.Name != want {
		return &OtherNameError{resource, want, c.Name}
	}
	return nil
}

// errFull says which bound was met and what to do.
func errFull(resource string, marks int64, bound string) error {
	return fmt.Errorf("fencing: %s was never written to, and there are marks for %d resources, as many as %s allows: "+
		"Reset those that exist no more, or raise the bound: %w", names.Quote(resource), marks, bound, ErrFull)
}
