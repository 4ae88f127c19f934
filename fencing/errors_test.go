package fencing_test

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/fencing"
)

func TestBadClaimSaysWhichPartAndWhy(t *testing.T) {
	for want, err := range map[string]*fencing.ClaimError{
		"fencing: malformed claim: name is empty":      {Part: "name", Reason: "is empty"},
		"fencing: malformed claim: token: broken":      {Part: "token", Err: errors.New("broken")},
		"fencing: malformed claim: token -7: no token": {Part: "token", Reason: "-7", Err: errors.New("no token")},
	} {
		if got := err.Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestClaimIsPrintedWithItsNameIfItHasOne(t *testing.T) {
	for want, c := range map[string]fencing.Claim{`token 7 of "job"`: {Name: "job", Token: 7}, "token 7": {Token: 7}} {
		if got := c.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestNotDoneKeepsTheError(t *testing.T) {
	own := errors.New("own")
	err := fencing.NotDone(own)
	if !errors.Is(err, own) || !errors.Is(err, fencing.ErrNotDone) || err.Error() != "own" {
		t.Errorf("got %v", err)
	}
	if fencing.NotDone(nil) != nil {
		t.Error("NotDone(nil) is not nil")
	}
}
