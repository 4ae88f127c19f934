package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// A former holder is told by a poll within three quarters of a lock delay. If the reply to the look at the end of the
// delay comes within a quarter of it, there was a quorum for long enough.
func TestLockDelayRunsOnceMoreIfTheLookAtItsEndIsAnsweredAQuarterOfItLate(t *testing.T) {
	for late, again := range map[time.Duration]time.Duration{
		kit.LockDelay/4 - 1: 0, kit.LockDelay / 4: 0, kit.LockDelay/4 + 1: kit.LockDelay,
	} {
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				ahead := kit.Join(t, srv, entriesX)
				done := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
				kit.Queued(t, srv, entriesX, 2)
				ahead.Revoke()
				time.Sleep(10 * kit.OneWay) // the first look has shown the claim
				shown := time.Now().Add(-7 * kit.OneWay)
				arrives := shown.Add(kit.LockDelay + late - kit.OneWay)
				p.Plan(func(kind string, _ int) (f etcdfake.Fate) {
					if left := time.Until(arrives) - kit.OneWay; kind == "read" && left > 0 { // copies, too
						f.Request = left
					}
					return f
				})
				g := <-done
				took, want := time.Since(shown), kit.LockDelay+late+again
				if took < want || took > want+kit.Prompt {
					t.Errorf("held after %v, want %v; sent %v", took, want, p.Counts())
				}
				p.Plan(nil)
				mustHandOff(t, g)
			})
		})
	}
}

// The delay was over before the claim was deleted, so it does not matter how long that takes.
func TestLateReplyToTheClearCostsNoDelay(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		ahead := kit.Join(t, srv, entriesX)
		done := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		p.PlanAll("clear", etcdfake.Fate{Request: kit.LockDelay / 2})
		ahead.Revoke()
		revoked := time.Now()
		g := <-done
		if took, want := time.Since(revoked), 3*kit.LockDelay/2; took < want || took > want+kit.Prompt {
			t.Errorf("held after %v, want %v; sent %v", took, want, p.Counts())
		}
		p.Plan(nil)
		mustHandOff(t, g)
	})
}

// The holder, told meanwhile, has deleted its claim. A look finds that, and how late its reply is does not matter.
func TestLookThatFindsNothingAheadEndsTheDelay(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		ahead := kit.Join(t, srv, entriesX)
		done := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		ahead.Vanish() // its session lives, so the delay is longer than a look's pause
		time.Sleep(lookAgain / 2)
		srv.Delete(ahead.Claim)
		p.PlanAll("read", etcdfake.Fate{Request: kit.LockDelay / 2})
		left := time.Now()
		g := <-done
		if took, want := time.Since(left), (lookAgain+kit.LockDelay)/2; took > want+kit.Prompt {
			t.Errorf("held after %v, want %v; sent %v", took, want, p.Counts())
		}
		p.Plan(nil)
		mustHandOff(t, g)
	})
}
