package backoff_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-go/holdfast"
	. "github.com/holdfast-go/holdfast/backoff"
)

// What is unknown may come later, unless etcd has answered.
func TestOnlyAFullStoreLeavesWhatWasDoneUnknownAndNothingPending(t *testing.T) {
	for name, err := range rpctypesErrors(t) {
		want := Classify(err) == Unknown && name != "ErrGRPCNoSpace"
		for _, err := range []error{err, rpctypes.Error(err), fmt.Errorf("wrapped: %w", err), Again(err), Final(err)} {
			if Pending(err) != want {
				t.Errorf("%s, %v: pending %v", name, err, !want)
			}
		}
	}
	full, denied := error(rpctypes.ErrNoSpace), error(rpctypes.ErrPermissionDenied)
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("nobody has heard of it"), true},
		{context.DeadlineExceeded, true},
		{holdfast.ErrOutcomeUnknown, true},
		{errors.Join(full, denied), false},
		{errors.Join(denied, full), false},
		{errors.Join(full, context.Canceled), true},
		{errors.Join(context.Canceled, full), true},
		{fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, full), true},
	} {
		if Pending(c.err) != c.want {
			t.Errorf("%v: pending %v", c.err, !c.want)
		}
	}
}
