package queue

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

func TestContextOfAnEndedHoldIsDoneFromTheStart(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		q := p.queue("x")
		expectDead := func(h *Hold, want error) {
			t.Helper()
			ctx, cancel := h.Context(context.Background(), true)
			defer cancel()
			if ctx.Err() == nil || !errors.Is(context.Cause(ctx), want) {
				t.Errorf("a new context: %v, cause %v, want %v", ctx.Err(), context.Cause(ctx), want)
			}
		}
		h := mustAcquire(t, q)
		mustRelease(t, h)
		expectDead(h, holdfast.ErrReleased)

		h = mustAcquire(t, q)
		p.Suspend(7 * time.Second) // the clock has advanced, and no timer has fired yet
		expectDead(h, holdfast.ErrSuspended)
		p.Suspend(7 * time.Second)
		expectDead(h, holdfast.ErrLost)
	})
}

func TestContextOfAHoldEndsByItsCancelFunction(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		h := mustAcquire(t, start(t, srv).queue("x"))
		for _, strict := range []bool{false, true} {
			ctx, cancel := h.Context(t.Context(), strict)
			if ctx.Err() != nil {
				t.Error(ctx.Err())
			}
			cancel()
			if ctx.Err() == nil || len(h.contexts) != 0 {
				t.Errorf("after cancel the context has ended with %v, and the hold knows %d", ctx.Err(), len(h.contexts))
			}
		}
		mustRelease(t, h)
	})
}

// A lease may be lost before the timers of a hold run.
func TestHoldThatEndsBeforeItsTimersRun(t *testing.T) {
	t.Parallel()
	h := &Hold{life: &life{idle: &idle{}}}
	h.takeContexts()
	if !h.ended {
		t.Error("it has not ended")
	}
}

func TestHoldKnowsTheRevisionAtWhichItWasVerified(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		other := mustAcquire(t, p.queue("x"))
		if got := other.AcquiredRevision(); got != other.Token().Revision() {
			t.Errorf("of a free lock it is %d, want that of its entry, %d", got, other.Token().Revision())
		}
		waiter := acquireLater(t.Context(), start(t, srv).queue("x"))
		kit.Queued(t, srv, kit.Entries("x"), 2)
		mustRelease(t, other)
		r := granted(t, srv, waiter)
		if got := r.h.AcquiredRevision(); got <= r.h.Token().Revision() {
			t.Errorf("after a wait it is %d, want one after the release", got)
		}
		mustRelease(t, r.h)
	})
}

// Another client may hold as soon as the entry is gone, so the work must be told before.
func TestContextsEndBeforeTheEntryIsRemoved(t *testing.T) {
	for name, end := range map[string]func(h *Hold){
		"MaxHold": func(h *Hold) { <-h.Done() },
		"Release": func(h *Hold) { _ = h.Release(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				h := mustAcquireAs(t, p.queue("x"), Request{MaxHold: time.Minute})
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
				if removals != 1 || alive != 0 {
					t.Errorf("%d removals were sent while %d contexts were alive", removals, alive)
				}
			})
		})
	}
}

// A hold may end while newHold is still making it. This test is for -race.
func TestHoldThatEndsAsItBegins(t *testing.T) {
	srv := etcdfake.New(nil)
	t.Cleanup(srv.Close)
	sess, err := session.New(t.Context(), srv.Client(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sess.Close(context.Background()) })
	q := New(lease.Open(sess.Ref()), "lock", "x")
	for range 300 {
		<-mustAcquireAs(t, q, Request{MaxHold: 1}).Done()
	}
}
