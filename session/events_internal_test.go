package session

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
)

// A change of state may be about to be published when Close begins. A test from outside cannot hit that moment.
func TestClosedIsTheLastEvent(t *testing.T) {
	for _, late := range []holdfast.State{holdfast.Suspended, holdfast.Lost, holdfast.Connected} {
		bubble.Test(t, func(t *testing.T) {
			srv := etcdfake.New(etcdfake.Options{})
			t.Cleanup(srv.Close)
			var states []holdfast.State
			s, err := New(t.Context(), srv.Client(t), Options{
				Clock: MonotonicClock(), Logger: slog.New(slog.DiscardHandler),
				OnStateChange: func(ev Event) { states = append(states, ev.State) },
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.events.publish(Event{State: late, Lease: s.Lease()})
			synctest.Wait()
			told := s.events.told // the metrics count by it
			if len(states) != 1 || states[0] != holdfast.Closed || told != holdfast.Closed {
				t.Errorf("%v after Close: events %v, counted as %v", late, states, told)
			}
		})
	}
}
