package hold_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	"github.com/holdfast-go/holdfast/session"
)

// starvedCluster has five members. It becomes slow, and one member hangs; then its leader stops, and until another one
// is elected requests wait.
type starvedCluster struct {
	mu       sync.Mutex // protects the rest
	members  int        // that have connections: requests go to them in turn
	hung     bool       // the first of them serves nothing
	quickest time.Duration
	slowest  time.Duration
	elected  time.Time
}

func (c *starvedCluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// serve is the plan of one session's link.
func (c *starvedCluster) serve(seed uint64, n int) func(etcdfake.Call) etcdfake.Fate {
	drawn, next := rand.New(rand.NewPCG(seed, uint64(n))), n
	return func(call etcdfake.Call) etcdfake.Fate {
		if call.Request == nil || call.Method == "Watch" {
			return etcdfake.Fate{}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if next++; c.hung && next%c.members == 0 {
			return holdtest.Silence
		}
		trip := c.quickest + time.Duration(drawn.Int64N(int64(c.slowest-c.quickest)+1))
		return etcdfake.Fate{Request: max(0, time.Until(c.elected)) + trip/2, Reply: trip / 2}
	}
}

// Replies take seconds. A copy of a renewal goes out early enough for its reply, also if the first send was given to
// the member that hangs. Now and then a session draws the slowest trips in a row, so few may be lost.
func TestLeaderThatStopsBesideAHungMemberWhileRepliesTakeSecondsLosesFewSessions(t *testing.T) {
	const sessions, schedules = 40, 2
	var lost atomic.Int64
	for seed := range uint64(schedules) {
		bubble.Test(t, func(t *testing.T) { stopLeader(t, seed, sessions, &lost) })
	}
	if n := lost.Load(); n > schedules {
		t.Errorf("%d of %d sessions are lost, want at most one in a schedule", n, schedules*sessions)
	}
}

// stopLeader stops the leader of a slow cluster beside a hung member, and counts the sessions that are lost.
func stopLeader(t *testing.T, seed uint64, sessions int, lost *atomic.Int64) {
	srv := etcdfake.New(etcdfake.Options{Members: 5})
	t.Cleanup(srv.Close)
	c := &starvedCluster{members: 5, quickest: time.Millisecond, slowest: 5 * time.Millisecond}
	for i := range sessions {
		p := startQuiet(t, srv, func(o *session.Options) {
			o.OnStateChange = func(ev session.Event) {
				if ev.State == holdfast.Lost {
					lost.Add(1)
				}
			}
		})
		p.Link.Plan(c.serve(seed, i))
		t.Cleanup(p.Link.Heal) // before the session is closed
		holdtest.MustAcquire(t, p.Queue(fmt.Sprint(i)))
		time.Sleep(4700 * time.Millisecond / time.Duration(sessions)) // spreads their renewals
	}
	time.Sleep(30 * time.Second)
	c.change(func() { c.hung, c.quickest, c.slowest = true, 1500*time.Millisecond, 3*time.Second })
	time.Sleep(2 * time.Second)
	c.change(func() { c.members, c.elected = 4, time.Now().Add(2*time.Second) })
	time.Sleep(20 * time.Second)
}
