package queue

import (
	"testing"

	"github.com/holdfast-go/holdfast/etcdfake"
)

// A put of the session key that was not answered may have refused others, too.
func TestSessionKeyIsNotPutAgainWhileRefusedPutsAreInFlight(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		q := p.queue("x")
		s := &q.shared.sweeper
		inFlight := (&attempt{lease: p.Host.Lease()}).newEntry(q)
		suspects := []*entry{{q: q, of: &attempt{lease: inFlight.of.lease, unansweredAt: inFlight.of.lease.Gate()}}}
		p.PlanOne("gate", lostReply)
		if err := s.moveGate(t.Context(), inFlight.of.lease, suspects); err == nil {
			t.Fatal("the put was answered: this tests nothing")
		}
		if err := s.moveGate(t.Context(), inFlight.of.lease, suspects); err != errPutsInFlight {
			t.Errorf("with an attempt in flight that the first put may have refused: %v", err)
		}
		if n := p.Counts()["gate"]; n != 1 {
			t.Errorf("%d puts of the session key were sent, want 1 until the other attempt has its place", n)
		}
		inFlight.setCreated(1)
		if err := s.moveGate(t.Context(), inFlight.of.lease, suspects); err != nil {
			t.Error(err)
		}
		inFlight.finish()
	})
}
