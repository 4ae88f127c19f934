package sqlfence_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fencing"
)

func TestExpireWithoutALockIsRefusedWithoutAQuery(t *testing.T) {
	g := unreachableGuard(t)
	if _, err := g.Expire(t.Context(), fencing.Token(5), 0); !isArgument(err, "idle") {
		t.Errorf("idle 0: %v", err)
	}
	if _, err := g.Expire(t.Context(), nil, time.Hour); !errors.Is(err, fencing.ErrNoToken) {
		t.Errorf("no source: %v", err)
	}
}
