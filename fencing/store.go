package fencing

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/names"
)

// Store is a guard. It keeps a mark per resource, the largest token that it has
// admitted, and guarantees that no effect with a smaller token comes after one
// with a larger token. An implementation does that in one of two ways, and says in
// which:
//
//   - It raises the mark atomically with the effect, in a transaction of the
//     database that holds both.
//   - It holds the resource exclusively from the comparison to the end of the
//     effect.
//
// Raising the mark before the effect is not enough: token 5 is admitted and its
// process pauses, token 7 is admitted and writes, then 5 continues and overwrites
// 7. What does only that is a [Filter].
//
// A Store is safe for concurrent use.
type Store interface {
	// Do runs effect if c's token is at least as large as the mark of the
	// resource, and sets the mark to the token. effect runs on the caller's
	// goroutine, with a context derived from ctx that carries what the store
	// provides (such as a transaction). What effect leaves running after its
	// return is not guarded.
	//
	// Otherwise effect does not run, and errors.Is finds
	//
	//   - [ErrStale], a *[MarkError]: the mark is above the token;
	//   - [ErrOtherName], an *[OtherNameError]: the mark is of another lock. (An
	//     implementation without names must keep one mark per resource and name:
	//     tokens of different names must never be compared.)
	//   - [ErrBadClaim], a *[ClaimError]: c or resource is malformed, or the epoch
	//     is too far above the mark ([ErrEpochStep]);
	//   - [ErrFull]; ctx's error; or the error of the underlying storage.
	//
	// If effect ran, Do returns its error. If a commit follows the effect, Do may
	// return the commit's error, and it must commit nothing if effect failed. Do
	// marks an error as [ErrNotDone] if it knows that nothing was done.
	//
	// Do does not record refusals in an audit log. Its caller does, because it
	// knows the client's address.
	Do(ctx context.Context, resource string, c Claim, effect func(ctx context.Context) error) error
}

// Filter keeps marks like a [Store] but knows nothing of the effect. It refuses a
// holder that has been stale for a while, but not one that pauses between Admit
// and its effect.
//
// Use a Filter to refuse late clients early where the resource itself makes the
// comparison that counts.
type Filter interface {
	// Admit returns nil if c's token is at least as large as the mark of the
	// resource, and sets the mark to the token. Errors are those of Store.Do.
	Admit(ctx context.Context, resource string, c Claim) error
}

// MaxResource is the longest name of a resource, in bytes.
const MaxResource = 1024

func checkResource(resource string) error {
	switch {
	case resource == "":
		return &ClaimError{Part: "resource", Reason: "is empty"}
	case len(resource) > MaxResource:
		return &ClaimError{Part: "resource", Reason: fmt.Sprintf("is longer than %d bytes", MaxResource)}
	}
	return nil
}

func checkUse(resource string, c Claim) error {
	if err := checkResource(resource); err != nil {
		return err
	}
	return c.Validate()
}

// errFull returns [ErrFull] with the bound that was reached and what to do.
func errFull(resource string, marks int64, bound string) error {
	return fmt.Errorf("fencing: no room for the mark of %s: there are %d already, the limit is %s: "+
		"call Reset for resources that no longer exist, or raise the limit: %w",
		names.Quote(resource), marks, bound, ErrFull)
}
