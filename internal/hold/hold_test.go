package hold_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

func TestContextOfAnEndedHoldIsDoneFromTheStart(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		q := p.Queue("x")
		expectDead := func(h *hold.Hold, want error) {
			t.Helper()
			ctx, cancel := h.Context(context.Background(), true)
			defer cancel()
			if ctx.Err() == nil || !errors.Is(context.Cause(ctx), want) {
				t.Errorf("a new context: %v, cause %v, want %v", ctx.Err(), context.Cause(ctx), want)
			}
		}
		h := holdtest.MustAcquire(t, q)
		holdtest.MustRelease(t, h)
		expectDead(h, holdfast.ErrReleased)

		h = holdtest.MustAcquire(t, q)
		p.Suspend(7 * time.Second) // the clock has advanced, and no timer has fired yet
		expectDead(h, holdfast.ErrSuspended)
		ctx, cancel := h.Context(t.Context(), false)
		defer cancel()
		if ctx.Err() != nil || !h.Live() {
			t.Errorf("suspended: a context that is not strict: %v; live: %v", context.Cause(ctx), h.Live())
		}
		p.Suspend(7 * time.Second)
		expectDead(h, holdfast.ErrLost)
	})
}

func TestContextOfAHoldEndsByItsCancelFunction(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Queue("x"))
		for _, strict := range []bool{false, true} {
			ctx, cancel := h.Context(t.Context(), strict)
			if ctx.Err() != nil {
				t.Error(ctx.Err())
			}
			cancel()
			if ctx.Err() == nil || h.Contexts() != 0 {
				t.Errorf("after cancel the context has ended with %v, and the hold knows %d", ctx.Err(), h.Contexts())
			}
		}
		holdtest.MustRelease(t, h)
	})
}

// A session may be connected for days, and a program may ask for many contexts.
func TestContextOfAHoldIsForgottenOnceItIsCanceled(t *testing.T) {
	type tag struct{ _ [64]byte }
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Queue("x"))
		use := func() weak.Pointer[tag] {
			of := new(tag)
			_, cancel := h.Context(context.WithValue(t.Context(), tag{}, of), true)
			cancel()
			return weak.Make(of)
		}
		used := use()
		runtime.GC()
		if used.Value() != nil {
			t.Error("the session keeps it")
		}
		holdtest.MustRelease(t, h)
	})
}

func TestHoldWithoutAnAuditorIsRecordedByTheLoggerAndTheMetricsOfItsSession(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		var metrics kit.Metrics
		p := holdtest.Start(t, srv, holdtest.LogTo(&log), func(o *session.Options) { metrics = kit.CollectMetrics(o) })
		h := holdtest.MustAcquire(t, p.Queue("x"))
		srv.Delete(h.Key())
		noticed(t, h)
		time.Sleep(kit.Prompt)
		points := metrics.Points(t)
		for _, point := range []string{
			"acquire.duration kind=lock,outcome=held", "hold.duration kind=lock,outcome=lost",
		} {
			if points[point] != 1 {
				t.Errorf("%s: %v", point, points)
			}
		}
		if text := log.String(); strings.Count(text, `msg="holdfast: lost"`) != 1 {
			t.Errorf("logged %s", text)
		}
	})
}

func TestHoldKnowsTheRevisionAtWhichItWasVerified(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		other := holdtest.MustAcquire(t, p.Queue("x"))
		if got := other.AcquiredRevision(); got != other.Token().Revision() {
			t.Errorf("of a free lock it is %d, want that of its entry, %d", got, other.Token().Revision())
		}
		waiter := holdtest.AcquireLater(t.Context(), holdtest.Start(t, srv).Queue("x"))
		kit.Queued(t, srv, kit.Entries("x"), 2)
		holdtest.MustRelease(t, other)
		r := holdtest.Granted(t, srv, waiter)
		if got := r.H.AcquiredRevision(); got <= r.H.Token().Revision() {
			t.Errorf("after a wait it is %d, want one after the release", got)
		}
		holdtest.MustRelease(t, r.H)
	})
}

// Another client may hold as soon as the entry is gone, so the work must be told before.
func TestContextsEndBeforeTheEntryIsRemoved(t *testing.T) {
	for name, end := range map[string]func(h *hold.Hold){
		"MaxHold": func(h *hold.Hold) { <-h.Done() },
		"Release": func(h *hold.Hold) { _ = h.Release(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				h := holdtest.MustAcquireAs(t, p.Queue("x"), hold.Request{MaxHold: time.Minute})
				var contexts []context.Context
				for range 1000 {
					ctx, cancel := h.Context(context.Background(), false)
					defer cancel()
					contexts = append(contexts, ctx)
				}
				alive, removals := 0, 0
				p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
					txn, ok := c.Request.(*pb.TxnRequest)
					if !ok || len(txn.Success) == 0 || !bytes.Equal(txn.Success[0].GetRequestDeleteRange().GetKey(), []byte(h.Key())) {
						return etcdfake.Fate{}
					}
					removals++
					for _, ctx := range contexts {
						if ctx.Err() == nil {
							alive++
						}
					}
					return etcdfake.Fate{}
				})
				end(h)
				time.Sleep(4 * kit.OneWay)
				kit.NothingStands(t, srv)
				if removals != 1 || alive != 0 || h.Contexts() != 0 {
					t.Errorf("%d removals were sent while %d contexts were alive; the hold knows %d",
						removals, alive, h.Contexts())
				}
			})
		})
	}
}

// A hold may end while newHold is still making it. This test is for -race.
func TestHoldThatEndsAsItBegins(t *testing.T) {
	srv := etcdfake.New(etcdfake.Options{})
	t.Cleanup(srv.Close)
	sess, err := session.New(t.Context(), srv.Client(t), session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sess.Close(context.Background()) })
	q := queue.New(lease.Open(sess), holdfast.KindLock, "x")
	for range 300 {
		<-holdtest.MustAcquireAs(t, q, hold.Request{MaxHold: 1}).Done()
	}
}
