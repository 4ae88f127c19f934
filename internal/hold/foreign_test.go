package hold_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// endings are how lock y ends, whose context the calls about another lock have.
var endings = map[string]func(t *testing.T, srv *etcdfake.Server, y *hold.Hold){
	"its lease is lost": func(_ *testing.T, srv *etcdfake.Server, y *hold.Hold) { srv.Revoke(y.Lease()) },
	"released": func(_ *testing.T, _ *etcdfake.Server, y *hold.Hold) {
		_ = y.Release(context.Background())
	},
	"kicked": func(t *testing.T, srv *etcdfake.Server, y *hold.Hold) {
		holdtest.Notify(t, srv, srv.Keys(y.Key())[0], layout.Notice{By: "me", Reason: "to test"})
	},
}

// duringY runs a call about another lock for each ending of lock y, which comes while etcd is silent about requests of
// a kind.
func duringY(t *testing.T, kind string, call func(t *testing.T, p *holdtest.Process, cut func(), ctx context.Context)) {
	t.Helper()
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				y := holdtest.MustAcquire(t, holdtest.Start(t, srv).Queue("y"))
				ctx, cancel := y.Context(kit.Within(t, time.Minute), false)
				defer cancel()
				call(t, p, func() {
					p.PlanAll(kind, holdtest.Silence)
					time.AfterFunc(time.Second, func() { end(t, srv, y) })
				}, ctx)
				p.Plan(nil)
			})
		})
	}
}

// isOfCtx checks the error of a call that ended with ctx: it says nothing of an end of the lock that the call is about.
func isOfCtx(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, context.Canceled) || !errors.Is(err, holdfast.ErrOutcomeUnknown) {
		t.Errorf("%v, want the context's error, and an unknown outcome", err)
	}
	for _, end := range []error{holdfast.ErrLost, holdfast.ErrReleased, holdfast.ErrClosed} {
		if errors.Is(err, end) {
			t.Errorf("Is %q: %v", end, err)
		}
	}
}

func TestReleaseIsNotToldTheEndOfAnotherLock(t *testing.T) {
	duringY(t, "remove", func(t *testing.T, p *holdtest.Process, cut func(), ctx context.Context) {
		x := holdtest.MustAcquire(t, p.Queue("x"))
		cut()
		isOfCtx(t, x.Release(ctx))
	})
}

func TestDetachIsNotToldTheEndOfAnotherLock(t *testing.T) {
	duringY(t, "detach", func(t *testing.T, p *holdtest.Process, cut func(), ctx context.Context) {
		x := holdtest.MustAcquire(t, p.Queue("x"))
		cut()
		_, err := x.Detach(ctx, time.Hour)
		isOfCtx(t, err)
	})
}

func TestUpdateIsNotToldTheEndOfAnotherLock(t *testing.T) {
	duringY(t, "mark", func(t *testing.T, p *holdtest.Process, cut func(), ctx context.Context) {
		x := mustLead(t, p)
		cut()
		isOfCtx(t, x.Update(ctx, "data"))
		if err := x.Check(); err != nil {
			t.Errorf("Check: %v", err)
		}
	})
}

// The reader goes on, whatever etcd has answered.
func TestDowngradedReaderDoesNotEndWithAnotherLock(t *testing.T) {
	duringY(t, "remove", func(t *testing.T, p *holdtest.Process, cut func(), ctx context.Context) {
		x := mustAcquireDowngradable(t, p, hold.Request{})
		cut()
		reader, err := x.Downgrade(ctx)
		if err != nil || reader.Check() != nil {
			t.Fatalf("%v", err)
		}
		p.Plan(nil)
		holdtest.MustRelease(t, reader)
	})
}
