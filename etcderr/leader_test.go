package etcderr_test

import (
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	. "github.com/holdfast-go/holdfast/etcderr"
)

func TestNoLeaderIsARefusalWhereALeaderWasRequired(t *testing.T) {
	for _, err := range []error{rpctypes.ErrNoLeader, rpctypes.ErrGRPCNoLeader, fmt.Errorf("wrapped: %w", rpctypes.ErrNoLeader)} {
		if Classify(err) != Unknown || !Pending(err) {
			t.Errorf("%v: class %v, pending %v", err, Classify(err), Pending(err))
		}
		got := LeaderRequired(err)
		if Classify(got) != Transient || Pending(got) || !Retryable(got) || !errors.Is(got, err) || got.Error() != err.Error() {
			t.Errorf("%v where a leader was required: class %v, pending %v, retryable %v", err, Classify(got), Pending(got), Retryable(got))
		}
	}
	for name, err := range rpctypesErrors(t) {
		if name != "ErrGRPCNoLeader" && LeaderRequired(err) != err {
			t.Errorf("%s was changed", name)
		}
	}
	if joined := errors.Join(rpctypes.ErrNoLeader, rpctypes.ErrStopped); LeaderRequired(nil) != nil || LeaderRequired(joined) != joined {
		t.Error("nil, or what is joined with another error, was changed")
	}
}
