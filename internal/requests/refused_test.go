package requests_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/requests"
)

type hold struct{ ended int }

func (h *hold) EndStale() { h.ended++ }

type hook = requests.Hook

// lock embeds a hook as locks and terms do.
type lock struct{ hook }

func TestRefusedWriteEndsTheHoldOfAHolderWithAHook(t *testing.T) {
	h := new(hold)
	requests.Refused(&lock{requests.NewHook(h)})
	if h.ended != 1 {
		t.Errorf("the hold was ended %d times, want once", h.ended)
	}
	requests.Refused(new(struct{})) // a user's holder: nothing happens
}
