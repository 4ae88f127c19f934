package election_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

type (
	fn   = func(context.Context, *election.Term) error
	opts = election.Options
)

// later runs something that a test waits for or joins.
func later(f func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- f() }() // f ends with the contexts it uses
	return c
}

func TestRunWhileLeaderRunsOneTermAndResigns(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	el := election.New(open(t, srv.Client(t), session.Options{}), "x")
	failed := errors.New("the work failed")
	for _, want := range []error{nil, failed} {
		var term *election.Term
		err := el.RunWhileLeader(deadline(t), "v", func(ctx context.Context, t1 *election.Term) error {
			term = t1
			if h, ok := fencing.FromContext(ctx); !ok || h != fencing.Holder(t1) || t1.Check() != nil || ctx.Err() != nil {
				t.Errorf("in fn: %v, %v, %v", h, t1.Check(), ctx.Err())
			}
			if leader, err := el.Leader(ctx); err != nil || leader.Token != t1.Token() {
				t.Errorf("in fn: %+v, %v", leader, err)
			}
			return want
		})
		if err != want {
			t.Errorf("returned %v, want %v", err, want)
		}
		if term.Check() != holdfast.ErrReleased {
			t.Errorf("afterwards: %v", term.Check())
		}
		if kvs := srv.Keys(t, prefix); len(kvs) != 0 {
			t.Errorf("afterwards: %v", kvs)
		}
	}
}

// Scenario 27, and "drain, then release": as long as the work runs nobody else
// leads, for longer than the lease would live without renewals.
func TestEntryStaysAndIsRenewedUntilTheWorkHasDrained(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	el := election.New(open(t, link.Client(), session.Options{TTL: 2 * time.Second}), "x")
	next := election.New(open(t, srv.Client(t), session.Options{}), "x")
	ctx, cancel := context.WithCancel(t.Context())
	var other <-chan result
	err := el.RunWhileLeader(ctx, "v", func(ctx context.Context, term *election.Term) error {
		other = campaignLater(deadline(t), next, "next")
		srv.WaitForKeys(t, prefix, 2)
		cancel()
		<-ctx.Done()
		if err := link.Wait(deadline(t), "LeaseKeepAlive", link.Count()["LeaseKeepAlive"]+4); err != nil { // at least a TTL
			t.Error(err)
		}
		if len(other) != 0 || errors.Is(term.Check(), holdfast.ErrLost) {
			t.Errorf("released while the work runs: %v", term.Check())
		}
		return ctx.Err()
	})
	if err != context.Canceled {
		t.Errorf("returned %v", err)
	}
	if kvs := srv.Keys(t, prefix); len(kvs) != 1 || candidate(kvs[0].Value) != "next" {
		t.Errorf("when RunWhileLeader has returned: %v", kvs)
	}
	won(t, other)
}

// Scenario 27: fn never returns. Its entry goes, and nothing else.
func TestWorkThatDoesNotDrainLosesItsTermAndNothingElse(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	var log logs
	sess := open(t, srv.Client(t), session.Options{Logger: log.logger()})
	el := election.New(sess, "x").With(opts{DrainTimeout: 50 * time.Millisecond})
	lk, err := locker.NewMutex(sess, "other").Lock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	next := election.New(open(t, srv.Client(t), session.Options{}), "x")
	lease := sess.Lease()
	release := make(chan struct{})
	returned := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	var term *election.Term
	var other <-chan result
	err = el.RunWhileLeader(ctx, "v", func(_ context.Context, t1 *election.Term) error {
		defer close(returned)
		term = t1
		other = campaignLater(deadline(t), next, "next")
		srv.WaitForKeys(t, prefix, 2)
		cancel()
		<-release
		return errors.New("late")
	})
	var lost *holdfast.LostError
	if !errors.Is(err, election.ErrNotDrained) || !errors.As(err, &lost) || lost.Cause != holdfast.CauseNotDrained {
		t.Errorf("returned %v", err)
	}
	if !errors.As(term.Check(), &lost) || lost.Cause != holdfast.CauseNotDrained {
		t.Errorf("Check: %v", term.Check())
	}
	if kvs := srv.Keys(t, prefix); len(kvs) != 1 || candidate(kvs[0].Value) != "next" {
		t.Errorf("its entry stands: %v", kvs)
	}
	won(t, other)
	if _, err := fencing.NewFencedWriter(term).Put(deadline(t), "data", "stale"); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("the straggler's guarded write: %v", err)
	}
	if resp, err := term.Client().Txn(deadline(t)).If(term.IsOwner()).Commit(); err != nil || resp.Succeeded {
		t.Errorf("the straggler's guarded write, had it passed the Check: %v, %v", resp, err)
	}
	if err := lk.Check(); err != nil || sess.Lease() != lease {
		t.Errorf("the lock beside it: %v; lease %x after %x", err, sess.Lease(), lease)
	}
	if kvs := srv.Keys(t, "holdfast/lock/other/@/"); len(kvs) != 1 {
		t.Errorf("the entry of the lock beside it: %v", kvs)
	}
	if !log.has("has not returned in time") {
		t.Error("nobody was told")
	}
	close(release)
	<-returned
	eventually(t, "the straggler's end is logged", func() bool { return log.has("outlived its term has returned") })
}

// Invariant 15.
func TestPanicOfTheWorkGoesOnAfterResigning(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	var log logs
	el := election.New(open(t, srv.Client(t), session.Options{Logger: log.logger()}), "x")
	bug := errors.New("a bug of the user's")
	for name, call := range map[string]func(fn) error{
		"RunWhileLeader": func(f fn) error { return el.RunWhileLeader(deadline(t), "v", f) },
		"Run":            func(f fn) error { return el.Run(deadline(t), "v", f) },
	} {
		func() {
			defer func() {
				if p := recover(); p != any(bug) {
					t.Errorf("%s: recovered %v", name, p)
				}
				if kvs := srv.Keys(t, prefix); len(kvs) != 0 {
					t.Errorf("%s: not released when the panic arrives: %v", name, kvs)
				}
			}()
			t.Errorf("%s returned %v", name, call(func(context.Context, *election.Term) error { panic(bug) }))
		}()
		if !log.has("TestPanicOfTheWorkGoesOnAfterResigning") {
			t.Errorf("%s: the stack of the panic is nowhere", name)
		}
	}
	done := make(chan struct{})
	go func() { // ends by Goexit, as a failing test's would
		defer close(done)
		_ = el.RunWhileLeader(deadline(t), "v", func(context.Context, *election.Term) error { runtime.Goexit(); return nil })
		t.Error("RunWhileLeader returned after a Goexit")
	}()
	<-done
	if kvs := srv.Keys(t, prefix); len(kvs) != 0 {
		t.Errorf("not released after a Goexit: %v", kvs)
	}
}

func TestLossIsJoinedToWhatTheWorkReturned(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	failed := errors.New("the work failed")
	for name, want := range map[string]error{"nil": nil, "its own error": failed} {
		sess := open(t, srv.Client(t), session.Options{TTL: 2 * time.Second})
		el := election.New(sess, "x")
		err := el.RunWhileLeader(deadline(t), "v", func(ctx context.Context, term *election.Term) error {
			srv.Revoke(t, term.Lease())
			<-ctx.Done()
			return want
		})
		var lost *holdfast.LostError
		if !errors.As(err, &lost) || lost.Cause != holdfast.CauseRevoked || lost.Name != "x" || want != nil && !errors.Is(err, want) {
			t.Errorf("fn returned %s; RunWhileLeader %v", name, err)
		}
	}
	sess := open(t, srv.Client(t), session.Options{TTL: 2 * time.Second})
	err := election.New(sess, "x").RunWhileLeader(deadline(t), "v", func(ctx context.Context, term *election.Term) error {
		srv.Revoke(t, term.Lease())
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if _, bare := err.(*holdfast.LostError); !bare {
		t.Errorf("the loss is said twice: %v", err)
	}
}

func TestResignationThatIsNotAnsweredIsNoErrorOfTheWork(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	var log logs
	sess := open(t, link.Client(), session.Options{TTL: 60 * time.Second, Retry: quickAttempts, CloseTimeout: 50 * time.Millisecond, Logger: log.logger()})
	ctx, cancel := context.WithCancel(t.Context())
	err := election.New(sess, "x").RunWhileLeader(ctx, "v", func(context.Context, *election.Term) error {
		link.Stall("Txn")
		cancel()
		return nil
	})
	if err != nil || !log.has("not answered yet") {
		t.Errorf("%v; logged: %v", err, log.has("not answered yet"))
	}
	link.Heal()
	srv.WaitForKeys(t, prefix, 0)
}

func TestContextOfTheWorkEndsOnSuspensionWhereThatIsAskedFor(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	el := election.New(open(t, link.Client(), session.Options{TTL: 4 * time.Second}), "x").With(opts{CancelOnSuspended: true})
	err := el.RunWhileLeader(deadline(t), "v", func(ctx context.Context, term *election.Term) error {
		link.BlackHole()
		<-ctx.Done()
		if !errors.Is(term.Check(), holdfast.ErrSuspended) {
			t.Errorf("Check: %v", term.Check())
		}
		link.Heal()
		return context.Cause(ctx)
	})
	if !errors.Is(err, holdfast.ErrSuspended) {
		t.Errorf("returned %v", err)
	}
}

// Scenario 27: leadership is lost while fn runs; no other local fn overlaps
// it, though this session may well lead again before it has returned.
func TestNoFunctionOverlapsOneWhoseTermWasLost(t *testing.T) {
	t.Parallel()
	for name, drain := range map[string]time.Duration{"while it drains": 0, "when it was given up": 10 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := etcdtest.Start(t)
			sess := open(t, srv.Client(t), session.Options{TTL: 2 * time.Second})
			el := election.New(sess, "x").With(opts{DrainTimeout: drain})
			var running atomic.Int32
			enter := func() {
				if n := running.Add(1); n != 1 {
					t.Errorf("%d functions run", n)
				}
			}
			lost, release := make(chan *election.Term, 1), make(chan struct{})
			first := later(func() error {
				return el.RunWhileLeader(deadline(t), "first", func(ctx context.Context, term *election.Term) error {
					enter()
					defer running.Add(-1)
					srv.Revoke(t, term.Lease())
					<-ctx.Done()
					lost <- term
					<-release
					return nil
				})
			})
			old := await(t, "the first leads and loses", lost)
			// One that is queued already when the loss comes would be elected
			// at once; another that comes later must not even queue.
			second := later(func() error {
				return el.RunWhileLeader(deadline(t), "second", func(context.Context, *election.Term) error {
					enter()
					defer running.Add(-1)
					return nil
				})
			})
			if drain != 0 {
				if err := await(t, "the first is given up", first); !errors.Is(err, election.ErrNotDrained) || !errors.Is(err, holdfast.ErrLost) {
					t.Error(err)
				}
			}
			// Campaign has no function to protect: it may lead.
			term, err := el.Campaign(deadline(t), "third")
			if err != nil || term.Token() <= old.Token() {
				t.Errorf("%v, %v", term, err)
			}
			resign(t, term)
			if len(second) != 0 {
				t.Error("the second ran")
			}
			if err := el.RunWhileLeader(soon(t, 50*time.Millisecond), "v", func(context.Context, *election.Term) error { enter(); return nil }); !errors.Is(err, election.ErrNotDrained) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a third, for a while: %v", err)
			}
			ctx := fencing.NewContext(deadline(t), old)
			if err := el.RunWhileLeader(ctx, "v", func(context.Context, *election.Term) error { enter(); return nil }); !errors.Is(err, holdfast.ErrReentrant) {
				t.Errorf("from within the first: %v", err)
			}
			close(release)
			if err := await(t, "the second runs", second); err != nil {
				t.Error(err)
			}
			if drain == 0 {
				if err := await(t, "the first returns", first); !errors.Is(err, holdfast.ErrLost) {
					t.Error(err)
				}
			}
		})
	}
}

// The same, for one that had been queued when the first lost: it is elected,
// and steps down again.
func TestCandidateThatWasQueuedDoesNotRunBesideOneWhoseTermWasLost(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{TTL: 60 * time.Second})
	el := election.New(sess, "x")
	other := election.New(open(t, srv.Client(t), session.Options{}), "x")
	var running atomic.Int32
	release := make(chan struct{})
	second, third := make(chan (<-chan error), 1), make(chan (<-chan result), 1)
	first := later(func() error {
		return el.RunWhileLeader(deadline(t), "first", func(ctx context.Context, term *election.Term) error {
			running.Add(1)
			defer running.Add(-1)
			joined := &joinSignal{Context: deadline(t), joined: make(chan struct{})}
			second <- later(func() error {
				return el.RunWhileLeader(joined, "second", func(context.Context, *election.Term) error {
					if n := running.Load(); n != 0 {
						t.Errorf("it runs beside %d others", n)
					}
					return nil
				})
			})
			<-joined.joined
			third <- campaignLater(deadline(t), other, "third")
			srv.WaitForKeys(t, prefix, 2)
			if _, err := srv.Client(t).Delete(deadline(t), term.Key()); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			<-release
			return nil
		})
	})
	waiting := <-second
	term := won(t, <-third)
	// By now, or within 2 s, the first's session notices and queues for the
	// second, which is elected next and must not stay.
	srv.WaitForKeys(t, prefix, 2)
	resign(t, term)
	srv.WaitForKeys(t, prefix, 0)
	if len(waiting) != 0 {
		t.Error("the second ran")
	}
	close(release)
	if err := await(t, "the second runs", waiting); err != nil {
		t.Error(err)
	}
	if err := await(t, "the first returns", first); !errors.Is(err, holdfast.ErrLost) {
		t.Error(err)
	}
}
