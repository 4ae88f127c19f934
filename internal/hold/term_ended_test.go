package hold_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

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
				since, updated := h.Update(none, "new")
				_, downgraded := h.Downgrade(none)
				for i, err := range []error{updated, downgraded, h.Release(none)} {
					var wrong *holdfast.ArgumentError
					if !errors.As(err, &wrong) || wrong.Argument != "ctx" || since != 0 || h.Check() != before {
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
			_, err := h.Update(kit.Within(t, time.Minute), "new")
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
		if since, err := h.Update(t.Context(), "new"); since != 0 || err != h.Check() || len(p.Counts()) != 0 {
			t.Errorf("after the loss: %v; sent %v", err, p.Counts())
		}
	})
}

// What ends Resume: the end of the hold, that of its context, and a read that etcd refuses.
func TestResumeReturnsWhatEndsIt(t *testing.T) {
	for name, c := range map[string]struct {
		read etcdfake.Fate
		end  func(h *hold.Hold)
		want func(h *hold.Hold, err error) bool
	}{
		"the hold ends": {holdtest.Silence, func(h *hold.Hold) { _ = h.Release(context.Background()) },
			func(h *hold.Hold, err error) bool { return err == h.Check() && err == holdfast.ErrReleased }},
		"the context ends": {holdtest.Silence, func(*hold.Hold) {},
			func(_ *hold.Hold, err error) bool { return err == context.DeadlineExceeded }},
		"etcd refuses": {etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied}, func(*hold.Hold) {},
			func(h *hold.Hold, err error) bool {
				return err != nil && h.Check() == nil && !errors.Is(err, context.DeadlineExceeded)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				h := mustLead(t, p)
				p.PlanAll("session", c.read)
				done := make(chan error, 1)
				go func() { done <- h.Resume(kit.Within(t, time.Second)) }() // received below
				time.Sleep(kit.Prompt)
				c.end(h)
				if err := <-done; !c.want(h, err) {
					t.Errorf("Resume: %v; Check: %v", err, h.Check())
				}
				p.Plan(nil)
			})
		})
	}
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := mustLead(t, p)
		p.Link.BlackHole()
		time.Sleep(kit.Trust/2 + kit.Prompt)
		if err := h.Resume(kit.Within(t, time.Minute)); err != h.Check() || !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("the lease is lost: %v; Check: %v", err, h.Check())
		}
		p.Heal()
	})
}

// The lease is suspended once more while the entry is read. Resume waits until it is connected.
func TestResumeReturnsToAConnectedHold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := mustLead(t, p)
		p.Plan(func(kind string, _ int) etcdfake.Fate {
			switch kind {
			case "LeaseKeepAlive":
				return holdtest.Silence
			case "session":
				return etcdfake.Fate{Reply: 200 * time.Millisecond}
			}
			return etcdfake.Fate{}
		})
		time.Sleep(p.Host.Lease().UntilChange() - 100*time.Millisecond)
		done := make(chan error, 1)
		go func() { done <- h.Resume(kit.Within(t, time.Minute)) }() // received below
		time.Sleep(300 * time.Millisecond)
		if len(done) > 0 || !errors.Is(h.Check(), holdfast.ErrSuspended) {
			t.Errorf("Resume has returned: %v; Check: %v", len(done) > 0, h.Check())
		}
		p.Plan(nil)
		if err := <-done; err != nil || h.Check() != nil {
			t.Errorf("Resume: %v; Check: %v", err, h.Check())
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
		since, err := h.Update(kit.Within(t, time.Minute), "new")
		if since != 0 || !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Errorf("Update: %d, %v", since, err)
		}
		p.KV.Refuse(nil)
	})
}
