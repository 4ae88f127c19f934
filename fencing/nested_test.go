package fencing_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
)

// Without the check each of these would wait for itself.
func TestCallWithinAnEffectThatWouldWaitForItIsRefused(t *testing.T) {
	bubble.Test(t, testNesting)
}

func testNesting(t *testing.T) {
	s, other := fencing.NewMemoryStore(nil), fencing.NewMemoryStore(nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	nothing := func(context.Context) error { return nil }
	var inner context.Context
	err := s.Do(ctx, "r", claim(5), func(ctx context.Context) error {
		inner = ctx
		return s.Do(ctx, "another", claim(5), func(ctx context.Context) error {
			for name, err := range map[string]error{
				"Do": s.Do(ctx, "r", claim(7), nothing), "Admit": s.Admit(ctx, "another", claim(7)),
				"Reset": s.Reset(ctx, "r", nil),
			} {
				if !isArgument(err, "ctx") {
					t.Errorf("%s: %v", name, err)
				}
			}
			return other.Do(ctx, "r", claim(5), nothing)
		})
	})
	if err != nil {
		t.Error(err)
	}
	if err := s.Do(inner, "r", claim(6), nothing); err != nil {
		t.Errorf("after the effect: %v", err)
	}
}
