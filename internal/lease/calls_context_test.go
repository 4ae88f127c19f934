package lease_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

type contextKey struct{}

// A request ends with the lease, or a while after its caller, whose values it has. It leaves nothing behind.
func TestContextOfARequest(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		l := p.Host.Lease()
		for _, grace := range []time.Duration{0, time.Second / 4} {
			caller, cancel := context.WithCancel(t.Context())
			listens := &kit.Listened{Context: caller}
			ctx, stop := lease.ForRequest(context.WithValue(listens, contextKey{}, "value"), l, grace)
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

			ctx, stop = lease.ForRequest(&kit.Listened{Context: t.Context()}, l, grace)
			stop()
			if ctx.Err() == nil {
				t.Error("the context outlasts its request")
			}
			listens = &kit.Listened{Context: t.Context()}
			_, stop = lease.ForRequest(listens, l, grace)
			stop()
			listens.NothingListens(t, "a request")
		}
		ctx, stop := lease.ForRequest(t.Context(), l, time.Hour)
		defer stop()
		lost, stopLost := lease.UntilLost(t.Context(), l)
		defer stopLost()
		srv.Revoke(p.Sess.Lease())
		<-ctx.Done()
		<-lost.Done()
		if !errors.Is(context.Cause(lost), holdfast.ErrLost) {
			t.Errorf("ended by %v, want the loss", context.Cause(lost))
		}
	})
}

// A session and a lease may live for months.
func TestCallsLeaveNothingThatListensToTheSessionOrTheLease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		host := kit.Start(t, srv).Host
		open := &kit.Listened{Context: host.Context}
		_, stop := lease.WithSession(t.Context(), &lease.Env{Client: host.Client, Context: open})
		stop()
		open.NothingListens(t, "a call")

		var freed atomic.Bool
		func() {
			value := new([64]byte)
			runtime.AddCleanup(value, func(freed *atomic.Bool) { freed.Store(true) }, &freed)
			_, stop := lease.UntilLost(context.WithValue(t.Context(), contextKey{}, value), host.Lease())
			stop()
		}()
		for range 100 {
			if runtime.GC(); freed.Load() {
				return
			}
			runtime.Gosched()
		}
		t.Error("the context of a call that is over is kept as long as its lease")
	})
}

// There are two requests for each lock.
func TestContextOfARequestNeedsNoGoroutine(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		synctest.Wait()
		before := runtime.NumGoroutine()
		for range 10 {
			_, stop := lease.ForRequest(ctx, p.Host.Lease(), time.Second)
			defer stop()
		}
		if n := runtime.NumGoroutine() - before; n >= 10 {
			t.Errorf("%d goroutines for 10 requests", n)
		}
	})
}

func TestErrorOfACallThatTheEndOfItsSessionOrClientEnded(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		denied := rpctypes.ErrPermissionDenied
		check := func(what string, host *lease.Host, ctx context.Context, err, want error) {
			t.Helper()
			if got := lease.EndedBy(ctx, host.Env, err); got != want {
				t.Errorf("%s: %v becomes %v, want %v", what, err, got, want)
			}
		}
		open, closed := kit.Start(t, srv), kit.Start(t, srv)
		if err := closed.Sess.Close(kit.Within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		cli := srv.Client(t)
		sess, err := session.New(t.Context(), cli, session.Options{})
		if err != nil {
			t.Fatal(err)
		}
		_ = cli.Close()
		ofClient := lease.Open(sess)
		check("open", open.Host, t.Context(), denied, denied)
		check("open", open.Host, t.Context(), nil, nil)
		check("session closed", closed.Host, t.Context(), denied, holdfast.ErrClosed)
		check("session closed", closed.Host, t.Context(), nil, nil)
		check("session closed", closed.Host, canceled, context.Canceled, context.Canceled)
		check("session closed", closed.Host, t.Context(), holdfast.ErrClientClosed, holdfast.ErrClientClosed)
		check("client closed", ofClient, t.Context(), denied, holdfast.ErrClientClosed)
		check("client closed", ofClient, canceled, context.Canceled, context.Canceled)
		check("client closed", ofClient, t.Context(), nil, nil)
		_ = sess.Close(t.Context())
	})
}
