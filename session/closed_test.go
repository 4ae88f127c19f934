package session

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/bubble"
)

// A loss, or a new lease, may be about to be told when Close begins. From
// outside, that moment cannot be placed.
func TestClosedIsTheLastEvent(t *testing.T) {
	for _, late := range []holdfast.State{holdfast.Suspended, holdfast.Lost, holdfast.Connected} {
		bubble.Test(t, func(t *testing.T) {
			srv := etcdfake.New(nil)
			t.Cleanup(srv.Close)
			var told []holdfast.State
			s, err := New(t.Context(), srv.Client(), &Options{
				Clock: MonotonicClock(), Logger: slog.New(slog.DiscardHandler),
				OnStateChange: func(ev Event) { told = append(told, ev.State) },
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.publish(Event{State: late, Lease: s.Lease()})
			synctest.Wait()
			if len(told) != 1 || told[0] != holdfast.Closed || s.told != holdfast.Closed { // by told sessions are counted
				t.Errorf("%v after Close: told %v, counted as %v", late, told, s.told)
			}
		})
	}
}
