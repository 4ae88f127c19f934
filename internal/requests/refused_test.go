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
	// What has no hold: nothing happens.
	for what, holder := range map[string]any{
		"nil": nil, "a failed acquisition": (*lock)(nil), "a zero lock": new(lock), "a user's holder": new(struct{}),
	} {
		requests.Refused(holder)
		if behind := requests.Behind(holder); behind != nil {
			t.Errorf("%s: behind it is %v", what, behind)
		}
	}
	if requests.Behind(&lock{requests.NewHook(h)}) != h || h.ended != 1 {
		t.Error("Behind is the hold, and does not end it")
	}
}
