package queue_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// An entry is deleted by hand. Its session deletes the claim when it learns of that, whatever tells it, so the next one
// holds at once.
func TestClaimGoesWhenItsSessionLearnsThatTheEntryIsGone(t *testing.T) {
	release := func(t *testing.T, h *hold.Hold) {
		if err := h.Release(kit.Within(t, time.Minute)); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Release: %v", err)
		}
	}
	for name, c := range map[string]struct {
		plan  etcdfake.Fate // of the first deletion of the claim
		learn func(t *testing.T, h *hold.Hold)
	}{
		"by a release":                {learn: release},
		"by a poll":                   {learn: func(_ *testing.T, h *hold.Hold) { <-h.Done() }},
		"by a release, and is slow":   {etcdfake.Fate{LoseRequest: true}, release},
		"by a release, reply lost":    {holdtest.LostReply, release},
		"by a poll, the request lost": {etcdfake.Fate{LoseRequest: true}, func(_ *testing.T, h *hold.Hold) { <-h.Done() }},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				h := holdtest.MustAcquire(t, p.Queue("x"))
				p.PlanOne("claim", c.plan)
				srv.Delete(h.Key())
				c.learn(t, h)
				_ = h.Release(kit.Within(t, time.Minute))
				time.Sleep(kit.LockDelay)
				kit.NothingStands(t, srv)
				began := time.Now()
				next := holdtest.MustAcquire(t, holdtest.Start(t, srv).Queue("x"))
				if took := time.Since(began); took > kit.Prompt {
					t.Errorf("the next one held after %v", took)
				}
				holdtest.MustRelease(t, next)
			})
		})
	}
}

// The put was not answered, and another client has deleted the entry before the sweeper finds it.
func TestSweeperRemovesTheClaimOfAnEntryThatWasDeleted(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		answer := unansweredPut(t, p, srv)
		srv.Delete(string(srv.Keys(holdtest.EntriesX)[0].Key))
		answer()
		time.Sleep(time.Minute)
		kit.NothingStands(t, srv)
		if n := p.Queue("x").Used(); n != 0 {
			t.Errorf("%d keys are in use", n)
		}
	})
}
