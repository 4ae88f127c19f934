package view_test

import (
	"encoding/json"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/view"
)

// A holder without a token is none of the reasons for which a status page may fail.
func TestWhatHasNoTokenIsJSON(t *testing.T) {
	for _, v := range []any{view.Entry{}, view.Run{}, view.Place{}, election.Leader{}, &holdfast.LostError{}} {
		if text, err := json.Marshal(v); err != nil {
			t.Errorf("%T: %s, %v", v, text, err)
		}
	}
}
