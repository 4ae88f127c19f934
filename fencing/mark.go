package fencing

import (
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
)

// MaxEpochStep is how far the epoch of a claim may be above that of the mark (0 without a mark), and
// so the largest epoch that etcdfence.BumpEpoch sets. Epochs count restores, so a larger step is a mistake or
// a forged token: as a mark it would lock the resource for good.
const MaxEpochStep = 1024

// CheckMark returns nil if c may write to a resource with this mark; a zero mark is none. It is the
// rule of every [Store], also of your own: call [Claim.Validate] first, and leave the mark unchanged
// on an error: an *[OtherNameError], a *[MarkError], or a *[ClaimError] that Is [ErrEpochStep].
// Names are compared if both are known.
func (c Claim) CheckMark(resource string, mark Claim) error {
	if c.Name != "" && mark.Name != "" && mark.Token != 0 && c.Name != mark.Name {
		return &OtherNameError{Resource: resource, Want: mark.Name, Got: c.Name}
	}
	switch {
	case c.Token < mark.Token:
		return &MarkError{Resource: resource, Claim: c, Mark: mark.Token, MarkName: mark.Name}
	case c.Token.Epoch() > mark.Token.Epoch()+MaxEpochStep:
		return &ClaimError{"token", fmt.Sprintf("%v has epoch %d, the mark of %s has epoch %d: no lock issues such a token",
			c.Token, c.Token.Epoch(), names.Quote(resource), mark.Token.Epoch()), ErrEpochStep}
	}
	return nil
}

// MarkError says that the mark of a resource is above the presented token. It Is [ErrStale]. Nothing
// was done. After a restore of etcd see NeedsEpoch.
type MarkError struct {
	Resource string
	Claim    Claim          // the claim that was refused
	Mark     holdfast.Token // the largest token that the resource has seen
	MarkName string         // the lock that guards the resource; "" if only bare tokens have written
	Err      error          // says more, such as sqlfence.ErrExpired; nil: a newer holder has written
}

func (e *MarkError) Error() string {
	refused := fmt.Sprintf("fencing: %s refused token %v of %s: ", names.Quote(e.Resource), e.Claim.Token,
		lockName(e.Claim.Name))
	if e.Err != nil {
		return refused + e.Err.Error()
	}
	return fmt.Sprintf("%sit has seen %v of %s; %s", refused, e.Mark, lockName(e.MarkName), e.advice())
}

// advice tells the operator what to do. It is short, because after a restore it is
// part of every refusal.
func (e *MarkError) advice() string {
	switch {
	case e.Claim.Name == "" || e.MarkName == "":
		return "the names of the locks could not be compared: " +
			"present the lock instead of its bare token, so that the guard sees its name"
	case e.NeedsEpoch() > MaxEpochStep:
		return "no epoch can be bumped above that: Reset the mark once no stale holder is left"
	}
	return fmt.Sprintf("if etcd was restored from a backup, raise the epoch to %d or more (etcdfence.BumpEpoch) "+
		"and acquire again", e.NeedsEpoch())
}

// Is reports whether target is [ErrStale].
func (e *MarkError) Is(target error) bool { return target == ErrStale }

// Unwrap returns Err.
func (e *MarkError) Unwrap() error { return e.Err }

// NeedsEpoch returns the epoch to pass to etcdfence.BumpEpoch after a restore. If it is above [MaxEpochStep],
// Reset this mark instead.
func (e *MarkError) NeedsEpoch() int64 { return e.Mark.Epoch() + 1 }

func lockName(name string) string {
	if name == "" {
		return "an unnamed lock"
	}
	return names.Quote(name)
}
