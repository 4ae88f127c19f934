package queue_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// The reply to the first look is late. The delay counts from it, not from the sending of the look: until then the
// holder may not have been told.
func TestDelayCountsFromTheReplyThatShowsTheClaim(t *testing.T) {
	const late = kit.LockDelay / 5
	lock := func(p *holdtest.Process) *queue.Queue { return p.Queue("x") }
	permits := func(p *holdtest.Process) *queue.Queue { return p.Permits(1, 1) }
	for name, c := range map[string]struct {
		queueOf func(p *holdtest.Process) *queue.Queue
		prefix  string // of the entry ahead
		leave   func(*kit.Peer)
		delay   time.Duration
		first   time.Duration // when a reply shows what the delay counts from
	}{
		"lock, revoked":         {lock, holdtest.EntriesX, (*kit.Peer).Revoke, kit.LockDelay, late},
		"lock, deleted by hand": {lock, holdtest.EntriesX, (*kit.Peer).Vanish, kit.ToldWithin, late},
		"permit, revoked":       {permits, permitsX + "1-", (*kit.Peer).Revoke, kit.LockDelay, late},
		// The reply to the put of a permit shows that the claim ahead is dead.
		"permit, deleted by hand": {permits, permitsX + "1-", (*kit.Peer).Vanish, kit.ToldWithin, 0},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				kit.SetLimit(t, srv, 1)
				c.leave(kit.Join(t, srv, c.prefix))
				p := holdtest.Start(t, srv)
				began := time.Now()
				p.Plan(func(kind string, _ int) (f etcdfake.Fate) {
					if kind == "read" && time.Since(began) < late { // copies, too
						f.Reply = late
					}
					return f
				})
				r := admitted(t, holdtest.AcquireLater(kit.Within(t, time.Minute), c.queueOf(p)))
				if n := p.Counts()["read"]; n == 0 {
					t.Error("no look was sent: this tests nothing")
				}
				if took := r.At.Sub(began); took < c.first+c.delay {
					t.Errorf("it held after %v: the first reply came after %v, and the delay is %v", took, c.first, c.delay)
				}
				holdtest.MustRelease(t, r.H)
			})
		})
	}
}
