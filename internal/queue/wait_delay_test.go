package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
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
					if kind == "read" && n >= 2 && n < 10 { // it may be sent again meanwhile
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

// Its lock delay has passed while another entry was ahead, whose reads have shown that there is a quorum.
func TestLockDelayThatPassesBehindAnotherEntryCostsNoRead(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		ahead := kit.Join(t, srv, entriesX)
		done := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		srv.Revoke(p.Sess.Lease()) // so it queues again, with a delay
		time.Sleep(2 * kit.LockDelay)
		kit.Queued(t, srv, entriesX, 2)
		p.Plan(nil)
		ahead.Release()
		released := time.Now()
		g := <-done
		if after := time.Since(released); g == nil || after > kit.Prompt || p.Counts()["read"] != 1 {
			t.Errorf("granted %v after %v; sent %v", g != nil, after, p.Counts())
		}
		mustHandOff(t, g)
	})
}

// A session that ended long ago costs a quarter of the lock delay, which shortens none that runs.
func TestLockDelayThatRunsIsNotShortenedToAQuarter(t *testing.T) {
	for name, c := range map[string]struct{ runs, least, most time.Duration }{
		"none":  {0, kit.LockDelay / 4, kit.LockDelay / 2},
		"whole": {kit.LockDelay, kit.LockDelay, kit.LockDelay + kit.Prompt},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				holder, last := kit.JoinReader(t, srv, entriesX), kit.JoinReader(t, srv, entriesX)
				done := acquireLater(kit.Within(t, 2*time.Hour), p.queue("x"))
				kit.Queued(t, srv, entriesX, 3)
				for range 1000 {
					srv.Put("other", "")
				}
				holder.Revoke()
				time.Sleep(30 * time.Minute)
				e := sharedBy(p.Host).entriesOf(p.Host.Lease())[0]
				if c.runs > 0 {
					e.wait.setDelay(delayOf(c.runs))
				}
				p.Plan(nil)
				last.Release()
				released := time.Now()
				g := <-done
				sent := p.Counts()
				requests := time.Duration(sent["read"] + sent["committed read"])
				took := time.Since(released)
				if took < c.least || took > c.most || c.runs == 0 && took != c.least+kit.OneWay+2*kit.OneWay*requests {
					t.Errorf("held after %v; sent %v", took, sent)
				}
				mustHandOff(t, g)
			})
		})
	}
}
