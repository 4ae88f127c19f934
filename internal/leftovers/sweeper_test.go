package leftovers

import (
	"log/slog"
	"testing"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/lease"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

func TestMain(m *testing.M) { leak.Main(m) }

// suspect is a Suspect without a queue.
type suspect struct {
	key          string
	lease        *lease.Lease
	inFlight     bool
	unansweredAt int64
}

func (s *suspect) Key() string         { return s.key }
func (s *suspect) Lease() *lease.Lease { return s.lease }
func (s *suspect) InFlight() bool      { return s.inFlight }
func (s *suspect) UnansweredAt() int64 { return s.unansweredAt }
func (s *suspect) Kept() int64         { return 0 }
func (s *suspect) RemoveFound(int64)   {}
func (s *suspect) Log() *slog.Logger   { return slog.Default() }

// A put of the session key that was not answered may have refused others, too.
func TestSessionKeyIsNotPutAgainWhileRefusedPutsAreInFlight(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		keys, s, _ := New(p.Host, nil)
		lease := p.Host.Lease()
		inFlight := &suspect{key: "x", lease: lease, inFlight: true}
		keys.Register("x", lease, inFlight)
		suspects := []Suspect{&suspect{lease: lease, unansweredAt: lease.Gate()}}
		p.PlanOne("gate", etcdfake.Fate{LoseReply: true})
		if err := s.moveGate(t.Context(), lease, suspects); err == nil {
			t.Fatal("the put was answered: this tests nothing")
		}
		if err := s.moveGate(t.Context(), lease, suspects); err != errPutsInFlight {
			t.Errorf("with an attempt in flight that the first put may have refused: %v", err)
		}
		if n := p.Counts()["gate"]; n != 1 {
			t.Errorf("%d puts of the session key were sent, want 1 until the other attempt has its place", n)
		}
		inFlight.inFlight = false
		if err := s.moveGate(t.Context(), lease, suspects); err != nil {
			t.Error(err)
		}
	})
}
