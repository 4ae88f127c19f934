package fence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/fence"
)

func TestVerdictPromisesNothingThatIsNotKnown(t *testing.T) {
	plain := errors.New("driver: bad connection")
	below := &fencing.MarkError{Resource: "r", Claim: claim(5), Mark: 7}
	for name, c := range map[string]struct {
		err  error
		want fence.Verdict
	}{
		"nil":                         {nil, fence.Done},
		"stale":                       {fmt.Errorf("write: %w", below), fence.Stale},
		"other name":                  {&fencing.OtherNameError{}, fence.OtherName},
		"bad claim":                   {&fencing.ClaimError{Part: "token"}, fence.BadClaim},
		"token of zero":               {claim(0).Validate(), fence.BadClaim},
		"epoch step":                  {claim(1<<62).CheckMark("r", fencing.Claim{}), fence.BadClaim},
		"no claim":                    {holdfast.ErrNoToken, fence.NoClaim},
		"full":                        {fmt.Errorf("store: %w", fencing.ErrFull), fence.NothingDone},
		"not done":                    {fencing.NotDone(plain), fence.NothingDone},
		"not done, wrapped":           {fmt.Errorf("a: %w", fencing.NotDone(plain)), fence.NothingDone},
		"each of a join not done":     {errors.Join(fencing.NotDone(plain), fencing.ErrFull), fence.NothingDone},
		"one of a join not done":      {errors.Join(fencing.NotDone(plain), plain), fence.OutcomeUnknown},
		"unknown":                     {fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, plain), fence.OutcomeUnknown},
		"unknown, and stale":          {errors.Join(below, holdfast.ErrOutcomeUnknown), fence.OutcomeUnknown},
		"unknown, marked as not done": {fencing.NotDone(holdfast.ErrOutcomeUnknown), fence.OutcomeUnknown},
		"of a driver":                 {plain, fence.OutcomeUnknown},
		"deadline":                    {context.DeadlineExceeded, fence.OutcomeUnknown},
		"of another service":          {status.Error(codes.Unavailable, "down"), fence.OutcomeUnknown},
		"of etcd, without a guard":    {status.Error(codes.PermissionDenied, "no"), fence.OutcomeUnknown},
	} {
		if got := fence.VerdictOf(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if c.err != nil && c.want == fence.NothingDone && !errors.Is(c.err, fencing.ErrNotDone) {
			t.Errorf("%s: errors.Is does not find it", name)
		}
	}
}
