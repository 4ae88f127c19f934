package stale_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/stale"
)

func TestMain(m *testing.M) { leak.Main(m) }

type hold struct{ ended int }

func (h *hold) EndStale() { h.ended++ }

type hook = stale.Hook

// lock embeds a hook as locks and terms do.
type lock struct{ hook }

func TestRefusedWriteEndsTheHoldOfAHolderWithAHook(t *testing.T) {
	h := new(hold)
	stale.Refused(&lock{stale.NewHook(h)})
	if h.ended != 1 {
		t.Errorf("the hold was ended %d times, want once", h.ended)
	}
	stale.Refused(new(struct{})) // a user's holder: nothing happens
}
