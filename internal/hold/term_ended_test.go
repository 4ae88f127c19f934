package hold_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// A nil context is refused, and changes nothing, also after the end.
func TestCallsRefuseANilContext(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		var none context.Context
		for _, h := range []*hold.Hold{mustLead(t, p), mustAcquireDowngradable(t, p, hold.Request{})} {
			before := h.Check()
			for range 2 {
				updated := h.Update(none, "new")
				_, downgraded := h.Downgrade(none)
				for i, err := range []error{updated, downgraded, h.Release(none)} {
					var wrong *holdfast.ArgumentError
					if !errors.As(err, &wrong) || wrong.Argument != "ctx" || h.Check() != before {
						t.Errorf("%d: %v; Check: %v", i, err, h.Check())
					}
				}
				_ = h.Release(t.Context())
				before = holdfast.ErrReleased
			}
		}
	})
}

// The hold ends while an update is in flight, or before. That is what the update returns, and then it sends nothing.
func TestUpdateOfAHoldThatEndsReturnsItsEnd(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := mustLead(t, p)
		p.Updates(func(int) etcdfake.Fate { return holdtest.Silence })
		updated := make(chan error, 1)
		go func() { // received below
			err := h.Update(kit.Within(t, time.Minute), "new")
			updated <- err
		}()
		time.Sleep(kit.Prompt)
		holdtest.MustRelease(t, h)
		if err := <-updated; err != holdfast.ErrReleased {
			t.Errorf("in flight: %v", err)
		}
		h = mustLead(t, p)
		p.Host.LeaseGone(t.Context(), p.Host.Lease(), rpctypes.ErrLeaseNotFound)
		<-h.Done()
		time.Sleep(kit.Prompt)
		p.Plan(nil)
		if err := h.Update(t.Context(), "new"); err != h.Check() || len(p.Counts()) != 0 {
			t.Errorf("after the loss: %v; sent %v", err, p.Counts())
		}
	})
}

// A kicked hold is released, and an election is abandoned, and etcd does not answer. The callers have returned, but the
// name is not known to be free.
func TestNameIsTakenUntilItsReleaseIsAnswered(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, h *hold.Hold){
		"kicked":    func(t *testing.T, h *hold.Hold) { _ = h.Release(kit.Within(t, time.Second)) },
		"abandoned": func(_ *testing.T, h *hold.Hold) { _ = h.Abandon(holdfast.CauseNotDrained) },
	} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			p := holdtest.Start(t, srv)
			h := holdtest.MustAcquire(t, p.Queue("x"))
			if name == "kicked" {
				holdtest.Notify(t, srv, srv.Keys(h.Key())[0], layout.Notice{By: "ops", Reason: "deploy"})
				noticed(t, h)
			}
			p.Link.BlackHole()
			end(t, h)
			if _, err := holdtest.TryAcquire(kit.Within(t, time.Second), p.Queue("x")); !errors.Is(err, queue.ErrOccupied) {
				t.Errorf("%s: TryAcquire: %v", name, err)
			}
			p.Heal()
		})
	}
}

// A full store may have carried the update out all the same.
func TestUpdateThatAFullStoreRefusesIsOfUnknownOutcome(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := mustLead(t, p)
		p.KV.Refuse(func([]clientv3.Op) error { return rpctypes.ErrNoSpace })
		err := h.Update(kit.Within(t, time.Minute), "new")
		if !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Errorf("Update: %v", err)
		}
		p.KV.Refuse(nil)
	})
}

// An update finds a notice before the poll does, and its caller is told at once.
func TestUpdateThatFindsANoticeEndsTheHold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		h := mustLead(t, holdtest.Start(t, srv))
		holdtest.Notify(t, srv, srv.Keys(entriesOfTerm)[0], layout.Notice{By: "ops", Reason: "deploy"})
		began := time.Now()
		err := h.Update(t.Context(), "new")
		var lost *holdfast.LostError
		if took := time.Since(began); !errors.As(err, &lost) || lost.Cause != holdfast.CauseKicked || took != 2*kit.OneWay {
			t.Errorf("after %v: %v", took, err)
		}
		_ = h.Release(t.Context())
	})
}
