package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// A former holder is told by a poll within three quarters of a lock delay. If the reply that ends the delay comes
// within a quarter of it, there was a quorum for long enough.
func TestLockDelayRunsOnceMoreIfTheReplyComesAQuarterOfItLate(t *testing.T) {
	for late, delays := range map[time.Duration]time.Duration{
		kit.LockDelay/4 - 1: 1, kit.LockDelay / 4: 1, kit.LockDelay/4 + 1: 2,
	} {
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				ahead := kit.Join(t, srv, entriesX)
				done := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
				kit.Queued(t, srv, entriesX, 2)
				p.Plan(func(kind string, n int) (f etcdfake.Fate) {
					if kind == "clear" && n < 10 { // it may be sent again meanwhile
						f.Request = late - 2*kit.OneWay
					}
					return f
				})
				ahead.Revoke()
				revoked := time.Now()
				g := <-done
				took, least := time.Since(revoked), delays*kit.LockDelay+late
				if took < least || took > delays*(kit.LockDelay+late)+kit.Prompt/2 {
					t.Errorf("held after %v; sent %v", took, p.Counts())
				}
				p.Plan(nil)
				mustHandOff(t, g)
			})
		})
	}
}

// The quorum is back, and etcd carries out all copies of the clear at once. A copy was refused, since another one has
// been carried out, and its reply comes first. That is late as well.
func TestLockDelayRunsOnceMoreIfTheRefusalOfACopyComesLate(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		ahead := kit.Join(t, srv, entriesX)
		done := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		var back time.Time // written by the link only, which calls under a mutex of its own
		p.Plan(func(kind string, n int) (f etcdfake.Fate) {
			switch {
			case kind != "clear":
			case n == 1:
				back = time.Now().Add(kit.LockDelay)
				f = etcdfake.Fate{Request: kit.LockDelay, Reply: kit.LockDelay}
			case time.Now().Before(back):
				f.Request = time.Until(back) + time.Millisecond
			}
			return f
		})
		ahead.Revoke()
		revoked := time.Now()
		g := <-done
		if took, least := time.Since(revoked), 3*kit.LockDelay; took < least || p.Counts()["clear"] < 2 {
			t.Errorf("held after %v, want two delays beside the second in which nothing was answered; sent %v", took, p.Counts())
		}
		p.Plan(nil)
		mustHandOff(t, g)
	})
}

// The holder, told meanwhile, has deleted its claim: a look finds that, and its reply is late.
func TestLockDelayRunsOnceMoreIfALookThatFindsNothingAheadComesLate(t *testing.T) {
	for late, again := range map[time.Duration]time.Duration{
		kit.LockDelay/4 - 1: 0, kit.LockDelay/4 + 1: kit.LockDelay,
	} {
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				ahead := kit.Join(t, srv, entriesX)
				done := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
				kit.Queued(t, srv, entriesX, 2)
				ahead.Vanish() // its session lives, so the delay is longer than a look's pause
				time.Sleep(lookAgain / 2)
				srv.Delete(ahead.Claim)
				looks := 0
				p.Plan(func(kind string, _ int) (f etcdfake.Fate) {
					if kind == "read" {
						looks++
						if looks == 1 || late > kit.LockDelay/4 && looks < 10 { // the same look, sent again
							f.Request = late - 2*kit.OneWay
						}
					}
					return f
				})
				left := time.Now()
				g := <-done
				took, want := time.Since(left), lookAgain/2+late+again
				if took < want-kit.Prompt/2 || took > want+again/2+kit.Prompt {
					t.Errorf("held after %v, want %v; sent %v", took, want, p.Counts())
				}
				if !g.of.delayed {
					t.Error("the attempt did not note when the reply came")
				}
				p.Plan(nil)
				mustHandOff(t, g)
			})
		})
	}
}

// Looks during the delay find the claim. They say nothing of the reply that ends the delay.
func TestLockDelayRunsOnceMoreIfTheClearComesLateAfterPromptLooks(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		const late = kit.LockDelay / 2
		p := start(t, srv)
		ahead := kit.Join(t, srv, entriesX)
		done := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		p.PlanAll("clear", etcdfake.Fate{Request: late - 2*kit.OneWay})
		ahead.Vanish() // its session lives, so there are several looks
		left := time.Now()
		g := <-done
		if took, least := time.Since(left), kit.ToldWithin+late+kit.LockDelay; took < least {
			t.Errorf("held after %v, want %v; sent %v", took, least, p.Counts())
		}
		p.Plan(nil)
		mustHandOff(t, g)
	})
}
