package session_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
)

func TestCloseRevokesTellsAndIsIdempotent(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events := newRecorder()
		sess := c.open(t, session.Options{OnStateChange: events.record})
		held := await(t, sess)
		var bad *holdfast.ArgumentError
		if err := sess.Close(nil); !errors.As(err, &bad) || held.Check() != nil { //nolint:staticcheck // the bad input here
			t.Errorf("Close without a context: %v, %v", err, held.Check())
		}
		if err := sess.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !c.Expires(held.ID()).IsZero() {
			t.Error("the lease still exists")
		}
		events.next(t, holdfast.Closed)
		var lost *holdfast.LostError
		if err := held.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseClosed ||
			!errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("handle after Close: %v", err)
		}
		if err := sess.Check(); err != holdfast.ErrClosed || sess.State() != holdfast.Closed || sess.Remaining() != 0 {
			t.Errorf("session after Close: %v, %v, %v", err, sess.State(), sess.Remaining())
		}
		if _, err := lease.Open(sess).Await(t.Context()); err != holdfast.ErrClosed {
			t.Errorf("Await after Close: %v", err)
		}
		if sess.Lease() == 0 {
			t.Error("Lease is 0 after Close")
		}
		if err := sess.Close(t.Context()); err != nil {
			t.Errorf("second Close: %v", err)
		}
		if len(events) != 0 || c.count("LeaseRevoke") != 2 {
			t.Errorf("%d more events, %d revocations", len(events), c.count("LeaseRevoke"))
		}
	})
}

// Invariant 13, for Close: it revokes although its context is dead.
func TestCloseOnADeadContextStillRevokes(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{})
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		if err := sess.Close(dead); err != nil {
			t.Error(err)
		}
		if c.leases(t) != 0 {
			t.Error("not revoked")
		}
	})
}

func TestCloseReturnsWhenItsContextEndsAndSaysWhatIsUnknown(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{})
		c.hang()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		err := sess.Close(ctx)
		if !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(began) != 2*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if err := sess.Close(t.Context()); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("second Close: %v", err)
		}
	})
}

// Invariant 12: all goroutines and callbacks of the session have returned when Close has, and none starts afterwards.
func TestCloseJoinsWhatRunsOnTheSession(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{})
		var returned, called atomic.Bool
		lease.Open(sess).Go(func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(2 * time.Second)
			returned.Store(true)
		})
		sess.Subscribe(func(session.Event) {
			time.Sleep(time.Second)
			called.Store(true)
		})
		if err := sess.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !returned.Load() || !called.Load() {
			t.Errorf("after Close the goroutine has returned: %v, the callback: %v", returned.Load(), called.Load())
		}
		if lease.Open(sess).Go(func(context.Context) {}) {
			t.Error("a goroutine was started after Close")
		}
	})
}

// A callback may cancel its own subscription; Close still waits for that call.
func TestCloseJoinsACallbackWhoseSubscriptionWasCanceled(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{CloseTimeout: time.Hour})
		var returned atomic.Bool
		inside, cancels := make(chan struct{}), make(chan func(), 1)
		cancels <- sess.Subscribe(func(session.Event) {
			cancel := <-cancels
			cancel()
			close(inside)
			time.Sleep(time.Minute)
			returned.Store(true)
		})
		c.hang("LeaseKeepAlive")
		<-inside
		if err := sess.Close(t.Context()); err != nil || !returned.Load() {
			t.Errorf("Close: %v; the callback has returned: %v", err, returned.Load())
		}
	})
}

// The bubble of each round ends only when all its goroutines have, so a leak at any moment is a deadlock here.
func TestCloseLeavesNothingRunningAtAnyMoment(t *testing.T) {
	for ms := 0; ms < 40_000; ms += 613 {
		start(t, func(t *testing.T, c *cluster) {
			sess := c.open(t, session.Options{OnStateChange: func(session.Event) {}})
			time.Sleep(5 * time.Second)
			c.hang("LeaseKeepAlive")
			time.Sleep(time.Duration(ms) * time.Millisecond)
			c.link.Delay(150 * time.Millisecond) // so that requests are in flight
			time.Sleep(100 * time.Millisecond)
			if err := sess.Close(t.Context()); err != nil {
				t.Errorf("at %d ms: %v", ms, err)
			}
		})
	}
}

// Once, this Close and all others never returned.
func TestCloseFromACallbackReturnsAndNamesIt(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		closed := make(chan error, 1)
		var began time.Time
		var sess *session.Session
		ready := make(chan struct{})
		sess = c.open(t, session.Options{OnStateChange: func(ev session.Event) {
			<-ready
			if ev.State == holdfast.Lost {
				began = time.Now()
				closed <- sess.Close(context.Background())
			}
		}})
		close(ready)
		c.Revoke(sess.Lease())
		var stuck *session.CallbackError
		err := <-closed
		if !errors.As(err, &stuck) || time.Since(began) != 5*time.Second || errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		if len(stuck.Callbacks) != 1 || !strings.Contains(stuck.Callbacks[0], "TestCloseFromACallback") {
			t.Errorf("%v", err)
		}
		if err := sess.Close(t.Context()); err != nil {
			t.Errorf("Close after the callback has returned: %v", err)
		}
	})
}

// Invariant 12: the error names the callback that Close waits for.
func TestCloseNamesTheCallbackThatIsStuck(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		release := make(chan struct{})
		sess := c.open(t, session.Options{CloseTimeout: 3 * time.Second})
		sess.Subscribe(func(session.Event) { <-release })
		for _, want := range []time.Duration{3 * time.Second, 0} {
			began := time.Now()
			var stuck *session.CallbackError
			err := sess.Close(context.Background())
			if !errors.As(err, &stuck) || !strings.Contains(err.Error(), "TestCloseNamesTheCallbackThatIsStuck") ||
				time.Since(began) != want {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		}
		if c.count("LeaseRevoke") != 2 {
			t.Errorf("%d revocations, want that of each lease", c.count("LeaseRevoke"))
		}
		close(release)
		synctest.Wait()
		if err := sess.Close(t.Context()); err != nil {
			t.Errorf("Close after the callback returned: %v", err)
		}
	})
}

// Its context ends while it waits for a callback. By then the revocation has failed.
func TestCloseThatIsCutShortSaysWhatStands(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		release, cli := make(chan struct{}), c.dial(t)
		sess := c.openOn(t, cli, session.Options{})
		sess.Subscribe(func(session.Event) { <-release })
		_ = cli.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := sess.Close(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, new(*session.CallbackError)) ||
			!errors.Is(err, holdfast.ErrClientClosed) {
			t.Errorf("%v", err)
		}
		close(release)
	})
}

// Auditors run on goroutines of the session.
func TestCloseStopsWaitingForAGoroutineThatIsStuckInACallback(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		release := make(chan struct{})
		sess := c.open(t, session.Options{})
		lease.Open(sess).Go(func(context.Context) { <-release })
		began := time.Now()
		var stuck *session.CallbackError
		err := sess.Close(context.Background())
		if !errors.As(err, &stuck) || !strings.Contains(err.Error(), "Auditor") || time.Since(began) != 5*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		close(release)
		synctest.Wait()
		if err := sess.Close(t.Context()); err != nil {
			t.Errorf("Close after it has returned: %v", err)
		}
	})
}

// The revocation takes all of CloseTimeout. The goroutines of the session have a moment left, so that what ends with
// its last request is not taken for a callback that is stuck.
func TestCloseWaitsForGoroutinesAMomentLongerThanForTheRevocation(t *testing.T) {
	for late, stuck := range map[time.Duration]bool{time.Second / 2: false, time.Hour: true} {
		start(t, func(t *testing.T, c *cluster) {
			const closeTimeout = 3 * time.Second
			sess := c.open(t, session.Options{CloseTimeout: closeTimeout})
			began := time.Now()
			lease.Open(sess).Go(func(ctx context.Context) {
				<-ctx.Done()
				time.Sleep(closeTimeout + late)
			})
			c.hang()
			err := sess.Close(t.Context())
			if took := time.Since(began); took > 2*closeTimeout || !stuck && took != closeTimeout+late {
				t.Errorf("returned after %v, with a goroutine that ends %v after the revocation", took, late)
			}
			if !errors.Is(err, holdfast.ErrOutcomeUnknown) || errors.As(err, new(*session.CallbackError)) != stuck {
				t.Errorf("a goroutine ends %v after the revocation: %v", late, err)
			}
			time.Sleep(late) // it ends
		})
	}
}

// Close may come while the session puts the key of the lease that follows a loss, which Close does not know yet.
func TestCloseLeavesNoSessionKeyOfALeaseThatIsBeingGranted(t *testing.T) {
	for after := time.Duration(0); after < 100*time.Millisecond; after += 5 * time.Millisecond {
		start(t, func(t *testing.T, c *cluster) {
			sess := c.open(t, session.Options{})
			c.link.Delay(10 * time.Millisecond)
			c.Revoke(sess.Lease())
			time.Sleep(after)
			if err := sess.Close(t.Context()); err != nil {
				t.Errorf("closed after %v: %v", after, err)
			}
			time.Sleep(time.Second) // requests sent before have arrived
			if kvs := c.Keys("holdfast/session/"); len(kvs) > 0 {
				t.Errorf("closed after %v: left %v", after, kvs)
			}
		})
	}
}
