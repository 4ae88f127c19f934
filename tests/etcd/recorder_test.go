package etcd_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/session"
)

func lossOf(t *testing.T, ev session.Event) *holdfast.LostError {
	t.Helper()
	var lost *holdfast.LostError
	if !errors.As(ev.Err, &lost) {
		t.Fatalf("event %v: %v", ev.State, ev.Err)
	}
	return lost
}

func newRecorder() recorder { return make(recorder, 1000) }

// quiet returns options without a log.
func quiet(o session.Options) session.Options {
	o.Logger = slog.New(slog.DiscardHandler)
	return o
}

// recorder collects events.
type recorder chan session.Event

func (r recorder) tell(ev session.Event) { r <- ev }

func (r recorder) next(t *testing.T, want holdfast.State) session.Event {
	t.Helper()
	select {
	case ev := <-r:
		if ev.State != want {
			t.Fatalf("event %v -> %v (%v), want %v", ev.Previous, ev.State, ev.Err, want)
		}
		return ev
	case <-time.After(10 * time.Minute):
		t.Fatalf("no event, want %v", want)
	}
	panic("unreachable")
}
