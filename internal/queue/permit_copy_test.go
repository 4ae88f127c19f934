package queue_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// The put of a permit is carried out as that of a turn, for another one waits. A copy of it comes when the turn holds,
// and none waits. An administrator has deleted the turn, or its claim, right before. What is left of both says that the
// put was carried out: so the copy does nothing.
func TestLateCopyOfAPutDoesNothingWhileTheTurnOrItsClaimStands(t *testing.T) {
	for name, deleted := range map[string]func(turn string) string{
		"the turn stands":  kit.ClaimOf,
		"its claim stands": func(turn string) string { return turn },
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				_, release, front := permitWithWaiter(t, srv, 1, 1)
				p := holdtest.Start(t, srv)
				p.PlanOne("enqueue", etcdfake.Fate{Request: late})
				began := time.Now()
				done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Permits(1, 1))
				kit.Queued(t, srv, permitsX, 3)
				release()
				holdtest.MustRelease(t, heldNow(t, front))
				h := heldNow(t, done)
				time.Sleep(time.Until(began.Add(late - kit.OneWay/2)))
				before := kit.PutsEver(srv, "holdfast/sem/x/")
				srv.Delete(deleted(h.Key()))
				time.Sleep(time.Until(began.Add(late + 2*kit.OneWay)))
				if n := kit.PutsEver(srv, "holdfast/sem/x/"); n != before || p.Counts()["enqueue"] < 2 {
					t.Errorf("the late copy has put %d keys; sent %v", n-before, p.Counts())
				}
				_ = h.Release(kit.Within(t, time.Minute)) // it may be lost
				time.Sleep(late)
				kit.NothingStands(t, srv)
			})
		})
	}
}
