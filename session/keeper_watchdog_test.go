package session_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
)

// The model of the lease found this: the watchdog waited for the loss.
func TestSessionWhoseKeyIsPutLateIsToldThatItIsSuspended(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events, began := newRecorder(), time.Now()
		c.link.Plan(func(call etcdfake.Call) etcdfake.Fate { // the Grant and the put are slow, and no renewal is answered
			const half = 1900 * time.Millisecond
			return etcdfake.Fate{Request: half, Reply: half, LoseRequest: call.Method == "LeaseKeepAlive", Silent: true}
		})
		sess := c.open(t, session.Options{OnStateChange: events.record})
		held := await(t, sess)
		events.next(t, holdfast.Suspended)
		const renewal = 13500 * time.Millisecond / 8 // how long it is waited for
		if took := time.Since(began); took != 7600*time.Millisecond+renewal {
			t.Errorf("told after %v, want when the session key is put", took)
		}
		c.heal()
		if cause := context.Cause(held.ConnectedContext()); cause != holdfast.ErrSuspended {
			t.Errorf("cause %v", cause)
		}
		events.next(t, holdfast.Connected)
	})
}

// After a machine suspend the clock has jumped and the timers have not: a waiter sees Suspended by the clock, and
// the renewal may be confirmed before the watchdog has woken. The waiter must still be woken. Found by the
// simulation.
func TestWaiterThatSawASuspensionTheWatchdogMissedIsWoken(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		clock, jump := jumping()
		l := await(t, c.open(t, session.Options{Clock: clock}))
		time.Sleep(4900 * time.Millisecond) // the renewal is due in 0.16 s, the watchdog's timer in 1.85 s
		jump(3 * time.Second)
		if err := l.Check(); !errors.Is(err, holdfast.ErrSuspended) {
			t.Fatalf("Check: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.AwaitConnected(ctx); err != nil {
			t.Errorf("AwaitConnected: %v, although Check says %v", err, l.Check())
		}
	})
}

// A waiter that is woken by the confirmed renewal may run before the watchdog. What it acquires then must not get the
// context that the suspension has canceled.
func TestConnectedContextLivesAsSoonAsTheRenewalIsConfirmed(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		l := await(t, c.open(t, session.Options{}))
		for range 30 { // the scheduler decides which runs first
			c.hang("LeaseKeepAlive")
			for !errors.Is(l.Check(), holdfast.ErrSuspended) {
				time.Sleep(time.Second)
			}
			synctest.Wait()
			ended := l.ConnectedContext()
			c.heal()
			if err := l.AwaitConnected(t.Context()); err != nil {
				t.Fatal(err)
			}
			now := l.ConnectedContext()
			if ended.Err() == nil || now.Err() != nil {
				t.Fatalf("context of the suspension: %v, of the connection after it: %v", ended.Err(), now.Err())
			}
			synctest.Wait()
			if now.Err() != nil {
				t.Fatalf("the watchdog has canceled it: %v", now.Err())
			}
		}
	})
}

// A renewal may count a moment before half of the trusted time is over: for a moment the lease is connected, and who
// acts then gets a new context. The watchdog may look after that. Found by the campaign.
func TestContextOfAConnectionTheWatchdogMissedEndsWithTheSuspension(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		clock, jump := jumping()
		var suspended, late atomic.Bool
		ctx := lease.Observe(t.Context(), func(s lease.Step) {
			switch {
			case s.Action == lease.Suspends:
				suspended.Store(true)
			case s.Action == lease.Confirmed && suspended.Load() && !late.Swap(true):
				jump(7 * time.Second) // trusted for 13.5 s
			}
		})
		sess, err := session.New(ctx, c.dial(t), quiet(session.Options{Clock: clock}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sess.Close(context.Background()) })
		l := await(t, sess)
		c.hang("LeaseKeepAlive")
		for !errors.Is(l.Check(), holdfast.ErrSuspended) {
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		c.heal()
		c.hang("Range") // the next renewal has no proof
		for !late.Load() {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		if err := l.Check(); !errors.Is(err, holdfast.ErrSuspended) {
			t.Fatalf("Check: %v", err)
		}
		if cause := context.Cause(l.ConnectedContext()); cause != holdfast.ErrSuspended {
			t.Errorf("its context: %v", cause)
		}
	})
}

// If timers are quicker than the session's clock, the watchdog wakes again and again, shortly before the suspension.
// Time goes on while it looks. Found by the campaign.
func TestSuspensionIsToldInTimeIfTimersAreQuickerThanTheClock(t *testing.T) {
	for step := time.Millisecond; step < 30*time.Millisecond; step += time.Millisecond {
		start(t, func(t *testing.T, c *cluster) {
			var looks atomic.Int64
			mono := session.MonotonicClock()
			clock := func() time.Duration { return mono()*9/10 + time.Duration(looks.Add(1))*step }
			events := newRecorder()
			l := await(t, c.open(t, session.Options{Clock: clock, OnStateChange: events.record}))
			c.hang("LeaseKeepAlive")
			events.next(t, holdfast.Suspended)
			if late := l.Trust()/2 - l.Remaining(); late > time.Second {
				t.Errorf("a look takes %v: told %v after the suspension", step, late)
			}
			if ev := events.next(t, holdfast.Lost); ev.Previous != holdfast.Suspended { // it was told once
				t.Errorf("a look takes %v: %+v", step, ev)
			}
			c.heal()
			events.next(t, holdfast.Connected)
		})
	}
}
