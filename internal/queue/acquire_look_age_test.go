package queue

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/session"
)

// A machine sleeps between a look and its reply. Its monotonic clock stands still then, and an administrator may have
// removed the entry meanwhile. So the age of a look is by the session's clock, which counts the sleep.
func TestLookFromBeforeTheMachineHasSleptIsOld(t *testing.T) {
	for slept, reads := range map[time.Duration]int{0: 0, 10 * time.Second: 1} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			p := start(t, srv, func(o *session.Options) { o.TTL = time.Minute })
			p.PlanOne("enqueue", etcdfake.Fate{Reply: 100 * time.Millisecond})
			time.AfterFunc(50*time.Millisecond, func() { p.Suspend(slept) })
			g := mustAcquire(t, p.queue("x"))
			if n := p.Counts()["read"]; n != reads {
				t.Errorf("slept for %v: %d looks, want %d", slept, n, reads)
			}
			mustHandOff(t, g)
		})
	}
}
