package leftovers

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// What is added while the sweeper is at work is for its next round.
func TestSweeperSweepsOnceAtATimeAndQuietly(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		p := kit.Start(t, srv, logTo(&log))
		keys, s, _ := New(p.Host, nil)
		const read = 20 * kit.OneWay
		p.PlanAll("read", etcdfake.Fate{Request: read})
		for _, key := range []string{"x", "y"} {
			e := newSuspect(p.Host.Lease(), key)
			keys.Register(key, e.Lease, e)
			s.Add(&e.Suspect)
			time.Sleep(read / 4)
		}
		if n := p.Counts()["read"]; n != 1 {
			t.Errorf("%d reads side by side", n)
		}
		time.Sleep(10 * read)
		if n := p.Counts()["read"]; n != 2 || keys.InUse() != 0 {
			t.Errorf("%d reads, and %d keys are in use", n, keys.InUse())
		}
		if strings.Contains(log.String(), "refuses") {
			t.Errorf("nothing was refused:\n%s", &log)
		}
	})
}

// What the scanner has found has no put that the gate could refuse.
func TestOrphanDoesNotKeepTheGateFromMoving(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		keys, s, _ := New(p.Host, nil)
		l := p.Host.Lease()
		keys.Register("orphan", l, new(Suspect))
		keys.refuse(l)
		if err := s.moveGate(t.Context(), l, []*Suspect{&unanswered("y", l).Suspect}); err != nil {
			t.Error(err)
		}
	})
}
