package fencing_test

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/fencing"
)

func TestNotDoneKeepsTheError(t *testing.T) {
	own := errors.New("own")
	err := fencing.NotDone(own)
	if !errors.Is(err, own) || !errors.Is(err, fencing.ErrNotDone) || err.Error() != "own" {
		t.Errorf("got %v", err)
	}
	if fencing.NotDone(nil) != nil {
		t.Error("NotDone(nil) is not nil")
	}
}
