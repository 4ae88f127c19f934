package session

import (
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Operators count failed renewals by these words.
func TestEachFailureOfARenewalHasItsWord(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]string{
		errUnconfirmed:                "unconfirmed",
		errArrivedLate:                "late",
		rpctypes.ErrLeaseNotFound:     "failed",
		rpctypes.ErrNoLeader:          "failed",
		errors.New("connection lost"): "failed",
	} {
		if got := renewalOutcome(fmt.Errorf("renewal: %w", err)); got != want {
			t.Errorf("%v is counted as %q, want %q", err, got, want)
		}
	}
}
