package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// The context of a server's requests may live as long as the server.
func TestCallsLeaveNothingThatListensToTheCallersContext(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		ahead := kit.Join(t, srv, entriesX)
		q := p.queue("x")
		tk := newTicket(q, Request{})
		turns := []turn{{q.shared.join(tk, false), tk}}
		a := newAttempt(turns, p.Host.Lease(), false)
		if err := a.put(t.Context(), condition{}); err != nil {
			t.Fatal(err)
		}
		for name, call := range map[string]func(ctx context.Context) error{
			"a wait": func(ctx context.Context) error {
				time.AfterFunc(time.Second, ahead.Release)
				return a.awaitFront(ctx)
			},
			"Limit": func(ctx context.Context) error { _, err := p.permits(1, 1).sem.Limit(ctx); return err },
		} {
			ctx := &kit.Listened{Context: t.Context()}
			if err := call(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			ctx.NothingListens(t, name)
		}
		mustHandOff(t, newGrants(turns, a)[0])
	})
}

type contextKey struct{}

// A request ends with the lease, or a while after its caller, whose values it has. It leaves nothing behind.
func TestContextOfARequest(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		lease := p.Host.Lease()
		for _, grace := range []time.Duration{0, giveUpWait} {
			caller, cancel := context.WithCancel(t.Context())
			listens := &kit.Listened{Context: caller}
			ctx, stop := requestContext(context.WithValue(listens, contextKey{}, "value"), lease, grace)
			if ctx.Value(contextKey{}) != "value" {
				t.Error("the request lacks a value of its caller")
			}
			began := time.Now()
			cancel()
			<-ctx.Done()
			if took := time.Since(began); took != grace {
				t.Errorf("the request ended %v after its caller, want %v", took, grace)
			}
			stop()

			ctx, stop = requestContext(&kit.Listened{Context: t.Context()}, lease, grace)
			stop()
			if ctx.Err() == nil {
				t.Error("the context outlasts its request")
			}
			listens = &kit.Listened{Context: t.Context()}
			_, stop = requestContext(listens, lease, grace)
			stop()
			listens.NothingListens(t, "a request")
		}
		ctx, stop := requestContext(t.Context(), lease, time.Hour)
		defer stop()
		lost, stopLost := untilLost(t.Context(), lease)
		defer stopLost()
		srv.Revoke(p.Sess.Lease())
		<-ctx.Done()
		<-lost.Done()
		if !errors.Is(context.Cause(lost), holdfast.ErrLost) {
			t.Errorf("ended by %v, want the loss", context.Cause(lost))
		}
	})
}
