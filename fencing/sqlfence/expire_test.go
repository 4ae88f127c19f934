package sqlfence_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

func TestExpireWithoutALockIsRefusedWithoutAQuery(t *testing.T) {
	g := unreachableGuard(t)
	if n, err := g.Expire(t.Context(), holdfast.Token(5), 0); n != 0 || !isArgument(err, "idle") {
		t.Errorf("idle 0: %d deleted, %v", n, err)
	}
	if n, err := g.Expire(t.Context(), nil, time.Hour); n != 0 || !errors.Is(err, holdfast.ErrNoToken) {
		t.Errorf("no source: %d deleted, %v", n, err)
	}
}
