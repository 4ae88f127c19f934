package session_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
)

var badPolicy = backoff.Policy{Multiplier: 0.5}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBadInputIsRefusedBeforeAnyRPC(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		cli := f.dial(t)
		long := strings.Repeat("x", 65)
		for name, tc := range map[string]struct {
			cli      *clientv3.Client
			opts     session.Options
			argument string // of the ArgumentError; empty: a NameError
		}{
			"no client":           {nil, session.Options{}, "cli"},
			"hollow client":       {clientv3.NewCtxClient(t.Context()), session.Options{}, "cli"},
			"TTL too short":       {cli, session.Options{TTL: 999 * time.Millisecond}, "Options.TTL"},
			"TTL negative":        {cli, session.Options{TTL: -time.Second}, "Options.TTL"},
			"TTL too long":        {cli, session.Options{TTL: 601 * time.Second}, "Options.TTL"},
			"TTL not whole":       {cli, session.Options{TTL: 1500 * time.Millisecond}, "Options.TTL"},
			"margin negative":     {cli, session.Options{DriftMargin: -1}, "Options.DriftMargin"},
			"margin too large":    {cli, session.Options{DriftMargin: 4 * time.Second}, "Options.DriftMargin"},
			"close timeout":       {cli, session.Options{CloseTimeout: -1}, "Options.CloseTimeout"},
			"retry policy":        {cli, session.Options{Retry: badPolicy}, "Options.Retry.Multiplier"},
			"long attempt":        {cli, session.Options{Retry: backoff.Policy{Attempt: 5 * time.Second}}, "Options.Retry.Attempt"},
			"short lock delay":    {cli, session.Options{LockDelay: 199 * time.Millisecond}, "Options.LockDelay"},
			"long lock delay":     {cli, session.Options{LockDelay: 61 * time.Second}, "Options.LockDelay"},
			"long owner":          {cli, session.Options{Owner: strings.Repeat("x", 257)}, "Options.Owner"},
			"namespace segmented": {cli, session.Options{Namespace: "a/b"}, ""},
			"namespace reserved":  {cli, session.Options{Namespace: "@a"}, ""},
			"namespace too long":  {cli, session.Options{Namespace: long}, ""},
		} {
			_, err := session.New(t.Context(), tc.cli, &tc.opts)
			var argument *holdfast.ArgumentError
			var bad *holdfast.NameError
			switch {
			case tc.argument == "" && !errors.As(err, &bad):
				t.Errorf("%s: %v, want a NameError", name, err)
			case tc.argument != "" && (!errors.As(err, &argument) || argument.Argument != tc.argument):
				t.Errorf("%s: %v, want an ArgumentError for %s", name, err, tc.argument)
			}
		}
		//lint:ignore SA1012 a nil context is the bad input here
		_, err := session.New(nil, cli, nil)
		var argument *holdfast.ArgumentError
		if !errors.As(err, &argument) || argument.Argument != "ctx" {
			t.Errorf("nil ctx: %v", err)
		}
		if n := len(f.counts); n != 0 {
			t.Errorf("RPCs were sent: %v", f.counts)
		}
	})
}

func TestNewEndsWithItsContextWhenNothingAnswers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		f.cut = true
		ctx, cancel := context.WithTimeout(t.Context(), 17*time.Second)
		defer cancel()
		start := time.Now()
		_, err := session.New(ctx, f.dial(t), quiet(session.Options{}))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 17*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if n := f.count("LeaseGrant"); n > 14 { // at most eight in 12 s
			t.Errorf("%d grants in 17 s: it spins", n)
		}
	})
}

func TestNothingSpinsWhileNothingAnswers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		sess := f.open(t, session.Options{})
		f.set(func(f *fakeEtcd) { f.cut, f.counts = true, make(map[string]int) })
		time.Sleep(time.Hour)
		if sess.State() != holdfast.Lost {
			t.Errorf("state %v", sess.State())
		}
		for rpc, n := range map[string]int{"LeaseKeepAlive": 8, "LeaseGrant": 2600, "LeaseRevoke": 2600} {
			if got := f.count(rpc); got > n {
				t.Errorf("%s sent %d times in an hour, want at most %d", rpc, got, n)
			}
		}
	})
}

func TestStayLostGetsNoNewLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		sess := f.open(t, session.Options{StayLost: true})
		id := sess.Lease()
		f.set(func(f *fakeEtcd) { delete(f.expiry, int64(id)) })
		time.Sleep(time.Minute)
		if _, err := lease.Open(sess.Ref()).Await(t.Context()); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Await: %v", err)
		}
		if sess.State() != holdfast.Lost || sess.Lease() != id || f.count("LeaseGrant") != 1 {
			t.Errorf("state %v, id %x, %d grants", sess.State(), sess.Lease(), f.count("LeaseGrant"))
		}
	})
}

func TestCloseRevokesTellsAndIsIdempotent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f, events := newFakeEtcd(), newRecorder()
		sess := f.open(t, session.Options{OnStateChange: events.tell})
		held, _ := lease.Open(sess.Ref()).Await(t.Context())
		if err := sess.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !f.expires(held.ID()).IsZero() {
			t.Error("the lease still stands")
		}
		events.next(t, holdfast.Closed)
		var lost *holdfast.LostError
		if err := held.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseClosed || !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("handle after Close: %v", err)
		}
		if err := sess.Check(); err != holdfast.ErrClosed || sess.State() != holdfast.Closed || sess.Remaining() != 0 {
			t.Errorf("session after Close: %v, %v, %v", err, sess.State(), sess.Remaining())
		}
		if _, err := lease.Open(sess.Ref()).Await(t.Context()); err != holdfast.ErrClosed {
			t.Errorf("Await after Close: %v", err)
		}
		if sess.Lease() == 0 {
			t.Error("Lease is 0 after Close")
		}
		if err := sess.Close(t.Context()); err != nil {
			t.Errorf("second Close: %v", err)
		}
		if len(events) != 0 || f.count("LeaseRevoke") != 1 {
			t.Errorf("%d more events, %d revokes", len(events), f.count("LeaseRevoke"))
		}
	})
}

// Invariant 13, for Close: a dead context does not keep it from revoking, a
// live one bounds the wait.
func TestCloseOnADeadContextStillRevokes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		sess := f.open(t, session.Options{})
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		if err := sess.Close(dead); err != nil {
			t.Error(err)
		}
		if f.count("LeaseRevoke") != 1 {
			t.Error("not revoked")
		}
	})
}

func TestCloseReturnsWhenItsContextEndsAndSaysWhatIsUnknown(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		sess := f.open(t, session.Options{})
		f.set(func(f *fakeEtcd) { f.cut = true })
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		err := sess.Close(ctx)
		if !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 2*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if err := sess.Close(t.Context()); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("second Close: %v", err)
		}
	})
}

// Invariant 12, for the rest: whatever runs on the session has returned when
// Close has, and nothing starts afterwards.
func TestCloseJoinsWhatRunsOnTheSession(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		sess := f.open(t, session.Options{})
		var returned atomic.Bool
		lease.Open(sess.Ref()).Go(func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(2 * time.Second) // it has something to tidy up
			returned.Store(true)
		})
		var told atomic.Bool
		sess.Subscribe(func(session.Event) {
			time.Sleep(time.Second)
			told.Store(true)
		})
		if err := sess.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !returned.Load() || !told.Load() {
			t.Errorf("Close has returned; the goroutine has: %v, the callback has: %v", returned.Load(), told.Load())
		}
		if lease.Open(sess.Ref()).Go(func(context.Context) {}) {
			t.Error("a goroutine was started after Close")
		}
	})
}

// A subscription may be cancelled from within its own callback; Close still
// waits for that call.
func TestCloseJoinsACallbackWhoseSubscriptionWasCancelled(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		sess := f.open(t, session.Options{CloseTimeout: time.Hour})
		var returned atomic.Bool
		inside, cancels := make(chan struct{}), make(chan func(), 1)
		cancels <- sess.Subscribe(func(session.Event) {
			cancel := <-cancels
			cancel()
			close(inside)
			time.Sleep(time.Minute)
			returned.Store(true)
		})
		f.set(func(f *fakeEtcd) { f.noRenew = true })
		<-inside
		if err := sess.Close(t.Context()); err != nil || !returned.Load() {
			t.Errorf("Close: %v; the callback has returned: %v", err, returned.Load())
		}
	})
}

// The bubble of each round ends only when every goroutine in it has, so a
// leak at any moment deadlocks here.
func TestCloseLeavesNothingRunningAtAnyMoment(t *testing.T) {
	for ms := 0; ms < 40_000; ms += 613 {
		bubble.Test(t, func(t *testing.T) {
			f := newFakeEtcd()
			f.replies = 300 * time.Millisecond
			sess := f.open(t, session.Options{OnStateChange: func(session.Event) {}})
			time.Sleep(5 * time.Second)
			f.set(func(f *fakeEtcd) { f.noRenew = true })
			time.Sleep(time.Duration(ms) * time.Millisecond)
			if err := sess.Close(t.Context()); err != nil {
				t.Errorf("at %d ms: %v", ms, err)
			}
		})
	}
}

// Invariant 11.
func TestCallbacksHurtNothingButThemselves(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		release := make(chan struct{})
		sess := f.open(t, session.Options{})
		good, blocked := newRecorder(), newRecorder()
		sess.Subscribe(func(session.Event) { panic("a bug of the user's") })
		sess.Subscribe(func(ev session.Event) { <-release; blocked.tell(ev) })
		stop := sess.Subscribe(func(session.Event) { t.Error("called after cancel") })
		stop()
		sess.Subscribe(good.tell)
		sess.Subscribe(nil)()
		// Many short outages, then a loss.
		for range 100 {
			f.set(func(f *fakeEtcd) { f.noRenew = true })
			good.next(t, holdfast.Suspended)
			f.set(func(f *fakeEtcd) { f.noRenew = false })
			good.next(t, holdfast.Connected)
		}
		lease := sess.Lease()
		f.set(func(f *fakeEtcd) { delete(f.expiry, int64(lease)) })
		good.next(t, holdfast.Lost)
		good.next(t, holdfast.Connected)
		close(release)
		synctest.Wait()
		var states []holdfast.State
		for len(blocked) > 0 {
			states = append(states, (<-blocked).State)
		}
		if n := len(states); n > 70 || n < 3 || states[n-2] != holdfast.Lost || states[n-1] != holdfast.Connected {
			t.Errorf("the blocked subscriber was told %v", states)
		}
		if err := sess.Check(); err != nil {
			t.Error(err)
		}
	})
}

func TestCheckAllocatesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		sess := f.open(t, session.Options{Clock: session.SystemClock()})
		if n := testing.AllocsPerRun(100, func() { _ = sess.Check() }); n != 0 {
			t.Errorf("%v allocations per Check", n)
		}
	})
}
