package queue

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// The call ends in the pause before it would queue again, and says why it would.
func TestCallThatEndsBetweenTwoRoundsSendsNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv, func(o *session.Options) {
			o.Retry.Initial, o.Retry.Max, o.Retry.Rand = time.Minute, time.Minute, func() float64 { return 1 }
		})
		front := kit.Join(t, srv, entriesX)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		done := make(chan error, 1)
		go func() { // ends with ctx
			_, err := Set{p.queue("x")}.Acquire(ctx, Request{})
			done <- err
		}()
		kit.Queued(t, srv, entriesX, 2)
		srv.Delete(string(srv.Keys(entriesX)[1].Key))
		p.Plan(nil)
		front.Release()
		err := <-done
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrEntryGone) ||
			!strings.Contains(err.Error(), "last error") {
			t.Errorf("Acquire: %v", err)
		}
		if n := p.Counts()["enqueue"]; n != 0 {
			t.Errorf("%d puts", n)
		}
	})
}

// A call that begins between two leases has waited for none, so it does not delay.
func TestCallThatBeginsAfterALossHoldsAtOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		p.PlanAll("LeaseGrant", etcdfake.Fate{Request: time.Second})
		lost := p.Host.Lease()
		lost.Lose(holdfast.CauseExpired, nil)
		synctest.Wait()
		done := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		for p.Host.Lease() == lost {
			time.Sleep(time.Millisecond)
		}
		began := time.Now()
		g := <-done
		if took := time.Since(began); took > kit.Prompt {
			t.Errorf("held after %v", took)
		}
		mustHandOff(t, g)
	})
}

// The place of a caller who is the first one says nothing: what it waits for is told by the error.
func TestCallThatEndsInItsLockDelayHasNoPlace(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		front := kit.Join(t, srv, entriesX)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		done := make(chan error, 1)
		go func() { // ends with ctx
			_, err := Set{p.queue("x")}.Acquire(ctx, Request{})
			done <- err
		}()
		kit.Queued(t, srv, entriesX, 2)
		front.Revoke()
		time.Sleep(kit.LockDelay / 2)
		giveUp()
		err := <-done
		if err == nil || !strings.Contains(err.Error(), "lock delay had not passed") || errors.As(err, new(*Error)) {
			t.Errorf("Acquire: %v", err)
		}
		if len(srv.Keys(front.Claim)) == 0 {
			t.Error("the claim was deleted before its delay was over")
		}
	})
}

// acquireErr is acquireLater for a call that fails.
func acquireErr(ctx context.Context, q *Queue) <-chan error {
	done := make(chan error, 1)
	go func() { // ends with ctx
		_, err := Set{q}.Acquire(ctx, Request{})
		done <- err
	}()
	return done
}

func TestCallThatCloseEndsIsCountedAsClosed(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var metrics kit.Metrics
		p := start(t, srv, func(o *session.Options) { metrics = kit.CollectMetrics(o) })
		kit.Join(t, srv, entriesX)
		done := acquireErr(kit.Within(t, time.Minute), p.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		mustClose(t, p)
		<-done
		if points := metrics.Points(t); points["acquire.duration kind=lock,outcome=closed"] != 1 {
			t.Errorf("counted %v", points)
		}
	})
}
