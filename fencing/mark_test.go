package fencing_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/fencing"
)

func TestMarkOfAnotherLockIsNotCompared(t *testing.T) {
	err := fencing.Claim{Name: "a", Token: 5}.CheckMark("r", fencing.Claim{Name: "b", Token: 9})
	if !errors.Is(err, fencing.ErrOtherName) || errors.Is(err, fencing.ErrStale) {
		t.Errorf("error is %v", err)
	}
	mustSay(t, err, `"a"`, `"b"`)
}

func TestUnnamedTokenIsComparedWithAnyMark(t *testing.T) {
	bare := fencing.Claim{Token: 5}
	err := bare.CheckMark("r", fencing.Claim{Name: "b", Token: 9})
	var below *fencing.MarkError
	if !errors.As(err, &below) || below.MarkName != "b" {
		t.Fatalf("error is %#v", err)
	}
	const advice = "the names of the locks could not be compared"
	mustSay(t, err, `"b"`, "an unnamed lock", advice)
	err = fencing.Claim{Name: "a", Token: 5}.CheckMark("r", fencing.Claim{Token: 9})
	mustSay(t, err, `"a"`, "an unnamed lock", advice)
	for _, pass := range []struct{ c, mark fencing.Claim }{
		{bare, fencing.Claim{}}, {bare, fencing.Claim{Token: 5}}, {bare, fencing.Claim{Name: "b", Token: 5}},
		{fencing.Claim{Name: "a", Token: 5}, fencing.Claim{Token: 4}},
		{fencing.Claim{Name: "a", Token: 5}, fencing.Claim{Name: "b"}}, // without a token it is no mark
	} {
		if err := pass.c.CheckMark("r", pass.mark); err != nil {
			t.Errorf("%v over %v: %v", pass.c, pass.mark, err)
		}
	}
}

// A resource that has seen no such mark gives no advice that follows from one.
func TestMarkErrorWithAReasonSaysThatReason(t *testing.T) {
	reason := errors.New("marks up to 9 have expired: release and acquire again")
	err := error(&fencing.MarkError{Resource: "r", Claim: fencing.Claim{Name: "job", Token: 5}, Mark: 9, Err: reason})
	if !errors.Is(err, fencing.ErrStale) || !errors.Is(err, reason) || errors.Unwrap(err) != reason {
		t.Errorf("error is %#v", err)
	}
	if want := `fencing: "r" refused token 5 of "job": ` + reason.Error(); err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// The advice in a refusal must be possible to follow.
func TestRefusalAdvisesABumpOrAReset(t *testing.T) {
	for epoch, bump := range map[int64]bool{
		0: true, 3: true, fencing.MaxEpochStep - 1: true, fencing.MaxEpochStep: false, 1<<15 - 1: false,
	} {
		err := claim(7).CheckMark("r", claim(int64(newToken(t, epoch, 9))))
		if bump {
			mustSay(t, err, "BumpEpoch", fmt.Sprintf("to %d or more", epoch+1))
		} else {
			mustSay(t, err, "Reset")
		}
		if n := len(err.Error()); n > 230 { // a stale holder logs it with each refusal
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
