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
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/internal/holdtest"
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
func (c *starvedCluster) serve(n int) func(etcdfake.Call) etcdfake.Fate {
	drawn, next := rand.New(rand.NewPCG(1, uint64(n))), n
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

// Replies take seconds. A copy to another member than the one that hangs is sent early enough for its reply.
func TestLeaderThatStopsBesideAHungMemberWhileRepliesTakeSecondsLosesNoSession(t *testing.T) {
	const sessions = 40
	bubble.Test(t, func(t *testing.T) {
		srv := etcdfake.New(&etcdfake.Options{Members: 5})
		t.Cleanup(srv.Close)
		c := &starvedCluster{members: 5, quickest: time.Millisecond, slowest: 5 * time.Millisecond}
		var lost atomic.Int64
		for i := range sessions {
			p := startQuiet(t, srv, func(o *session.Options) {
				o.OnStateChange = func(ev session.Event) {
					if ev.State == holdfast.Lost {
						lost.Add(1)
					}
				}
			})
			p.Link.Plan(c.serve(i))
			t.Cleanup(p.Link.Heal) // before the session is closed
			holdtest.MustAcquire(t, p.Queue(fmt.Sprint(i)))
			time.Sleep(4700 * time.Millisecond / sessions) // spreads their renewals
		}
		time.Sleep(30 * time.Second)
		c.change(func() { c.hung, c.quickest, c.slowest = true, 1500*time.Millisecond, 3*time.Second })
		time.Sleep(2 * time.Second)
		c.change(func() { c.members, c.elected = 4, time.Now().Add(2*time.Second) })
		time.Sleep(20 * time.Second)
		if n := lost.Load(); n > 0 {
			t.Errorf("%d of %d sessions are lost", n, sessions)
		}
	})
}
