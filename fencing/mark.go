package fencing

import (
	"fmt"

	"github.com/holdfast-go/holdfast/internal/names"
)

// MaxEpochStep is how far the epoch of a claim may be above that of the mark it
// is compared with, and how far [BumpEpoch] raises an epoch at once. An epoch
// counts restores from a backup, so a larger step is a mistake or forged.
//
// The limit keeps such a token from becoming the mark. A mark that no lock can
// reach shuts its resource: with the largest epoch there is not even one to bump
// to. 1,024 is far more than the restores of any cluster, and of the 32,767
// epochs 31 such steps are left.
//
// A resource without a mark counts as one with epoch 0.
const MaxEpochStep = 1024

// ErrEpochStep is returned for an epoch that is more than [MaxEpochStep] ahead:
// of a claim, as a *[ClaimError], or of a bump, as an *[EpochError]. Nothing was
// done.
var ErrEpochStep = fmt.Errorf("epoch is more than %d ahead", MaxEpochStep)

// CheckMark is the rule of every [Store], for those who write one: it returns
// nil if c may pass the mark of a resource. A zero mark is none. c has passed
// [Claim.Validate], or it is a bare token without a name. Then, and where the
// mark has no name, names are not compared.
//
// The errors are a *[OtherNameError], a *[MarkError], or a *[ClaimError] that Is
// [ErrEpochStep]. With any of them, the mark must stay as it is.
func (c Claim) CheckMark(resource string, mark Claim) error {
	if c.Name != "" && mark.Name != "" && mark.Token != 0 {
		if err := c.CheckName(resource, mark.Name); err != nil {
			return err
		}
	}
	switch {
	case c.Token < mark.Token:
		return &MarkError{Resource: resource, Claim: c, Mark: mark.Token, MarkName: mark.Name}
	case c.Token.Epoch() > mark.Token.Epoch()+MaxEpochStep:
		return &ClaimError{"token", fmt.Sprintf("on %s: %v has epoch %d, more than %d above that of the mark, %d: no lock issues such a token",
			names.Quote(resource), c, c.Token.Epoch(), MaxEpochStep, mark.Token.Epoch()), ErrEpochStep}
	}
	return nil
}

// MarkError says that a resource has seen a larger token than the one presented.
// errors.Is(err, ErrStale) is true for each of them. Nothing was done.
//
// After a restore of etcd from a backup, when revisions begin again below the
// marks, holders that are perfectly current get this error, every one of them,
// until an operator raises the epoch: see NeedsEpoch, and [BumpEpoch].
type MarkError struct {
	Resource string
	Claim    Claim  // what was presented
	Mark     Token  // the largest token that the resource has seen
	MarkName string // the lock whose token that is; "" if it was not named
}

func (e *MarkError) Error() string {
	return fmt.Sprintf("fencing: %s refused %s: it has seen %v of %s; %s",
		names.Quote(e.Resource), e.Claim.describe(), e.Mark, lockName(e.MarkName), e.advice())
}

// advice is for the operator. It is short, since after a restore each refusal
// carries it.
func (e *MarkError) advice() string {
	switch {
	case e.Claim.Name == "" || e.MarkName == "":
		return "tokens of two locks cannot be compared: present the lock as the source, not its bare token, so that its name is checked"
	case e.NeedsEpoch() > MaxEpochStep:
		return "no epoch to bump to is above that: Reset the mark once no stale holder is left"
	}
	return fmt.Sprintf("if etcd was restored from a backup, raise the epoch to %d or more (fencing.BumpEpoch) and acquire again", e.NeedsEpoch())
}

// Is makes errors.Is(err, ErrStale) true.
func (e *MarkError) Is(target error) bool { return target == ErrStale }

// NeedsEpoch is the smallest epoch under which every token is above the mark:
// what the operator gives to [BumpEpoch] after a restore. One above
// [MaxEpochStep] was never bumped to: resources that have no mark would refuse
// its tokens. Then reset the mark of this resource.
func (e *MarkError) NeedsEpoch() int64 { return e.Mark.Epoch() + 1 }

func (c Claim) describe() string { return fmt.Sprintf("token %v of %s", c.Token, lockName(c.Name)) }

func lockName(name string) string {
	if name == "" {
		return "a lock that was not named"
	}
	return names.Quote(name)
}

// checkResource is what every store looks at before anything else.
func checkResource(resource string) error {
	switch {
	case resource == "":
		return &ClaimError{"resource", "is empty", nil}
	case len(resource) > MaxResource:
		return &ClaimError{"resource", fmt.Sprintf("is longer than %d bytes", MaxResource), nil}
	}
	return nil
}

func checkUse(resource string, c Claim) error {
	if err := checkResource(resource); err != nil {
		return err
	}
	return c.Validate()
}
