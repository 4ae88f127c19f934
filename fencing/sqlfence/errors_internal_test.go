package sqlfence

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

func TestEachErrorIsWhatItIsDocumentedAsAndNothingElse(t *testing.T) {
	t.Parallel()
	below := &fencing.MarkError{Resource: "r", Claim: fencing.Claim{Name: "a", Token: 5}, Mark: 7}
	all := []error{ErrTxEnded, ErrRewound, ErrExpired, fencing.ErrStale, fencing.ErrOtherName, holdfast.ErrOutcomeUnknown}
	for _, c := range []struct {
		err error
		is  []error
	}{
		{ErrTxEnded, []error{ErrTxEnded, holdfast.ErrOutcomeUnknown}},
		{rewound(below), []error{ErrRewound, fencing.ErrStale}},
		{below, []error{fencing.ErrStale}},
	} {
		var is []error
		for _, target := range all {
			if errors.Is(c.err, target) {
				is = append(is, target)
			}
		}
		if errors.Join(is...).Error() != errors.Join(c.is...).Error() {
			t.Errorf("%v is %q, want %q", c.err, is, c.is)
		}
	}
}
