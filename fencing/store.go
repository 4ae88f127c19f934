package fencing

import (
	"context"
	"errors"
	"fmt"
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
	//   - [ErrOtherName], a *[NameError], if the mark was set under another name
	//     (an implementation that does not record names must keep one mark for
	//     each pair of resource and name: never may tokens of different names
	//     be compared);
	//   - [ErrBadClaim] if c or resource cannot be used, [ErrNoToken] too for a
	//     token of zero;
	//   - [ErrFull], ctx's error, or what the store's own storage says.
	//
	// When effect has run, Do returns its error, and an implementation whose
	// commit follows on the effect may return that one's.
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
var ErrFull = errors.New("store of fencing tokens is full")

// MarkError says that a resource has seen a larger token than the one presented.
// errors.Is(err, ErrStale) is true for each of them. Nothing was done.
//
// After a restore of etcd from a backup, when revisions begin again below the
// marks, holders that are perfectly current get this error, every one of them,
// until an operator raises the epoch: see NeedsEpoch, and [BumpEpoch].
type MarkError struct {
	Resource string
	Claim    Claim // what was presented
	Mark     Token // the largest token that the resource has seen
}

func (e *MarkError) Error() string {
	return fmt.Sprintf("fencing: %s refused %v: it has seen %v, a later holder's. "+
		"If the one refused is the present holder, the etcd that issues the tokens was restored from a backup and its revisions were set back: "+
		"an operator must raise the epoch of the lock's namespace to %d or more (fencing.BumpEpoch), and holders must acquire again",
		quote(e.Resource), e.Claim, e.Mark, e.NeedsEpoch())
}

// Is makes errors.Is(err, ErrStale) true.
func (e *MarkError) Is(target error) bool { return target == ErrStale }

// NeedsEpoch is the smallest epoch under which every token is above the mark:
// what the operator gives to [BumpEpoch] after a restore. Beyond 32767 there is
// none, and marks have to be reset by hand.
func (e *MarkError) NeedsEpoch() int64 { return e.Mark.Epoch() + 1 }

// checkUse is what every store looks at before anything else.
func checkUse(resource string, c Claim) error {
	switch {
	case resource == "":
		return &ClaimError{"resource", "is empty", nil}
	case len(resource) > MaxResource:
		return &ClaimError{"resource", fmt.Sprintf("is longer than %d bytes", MaxResource), nil}
	}
	return c.Validate()
}

// CheckName returns a *[NameError] unless c is of the lock named want.
func (c Claim) CheckName(resource, want string) error {
	if c.Name != want {
		return &NameError{resource, want, c.Name}
	}
	return nil
}
