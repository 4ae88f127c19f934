package election_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// Drain, then release: no other candidate leads while the function runs, for longer
// than the lease would live without renewals.
func TestEntryStaysAndIsRenewedUntilTheWorkHasDrained(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		next := s.other(t)
		ctx, cancel := context.WithCancel(t.Context())
		var other <-chan result
		el := s.election().With(opts{Value: "v", DrainTimeout: 10 * time.Minute})
		err := el.RunWhileLeader(ctx, func(ctx context.Context, term *election.Term) error {
			other = campaignLater(deadline(t), next, "next")
			synctest.Wait()
			cancel()
			<-ctx.Done()
			time.Sleep(time.Minute)
			if len(other) != 0 || term.Check() != nil {
				t.Errorf("released while the function runs: %v", term.Check())
			}
			return ctx.Err()
		})
		if err != context.Canceled {
			t.Errorf("returned %v", err)
		}
		if kvs := s.srv.Keys(prefix); len(kvs) != 1 || kvs[0].Lease == int64(s.sess.Lease()) {
			t.Errorf("when RunWhileLeader has returned: %v", kvs)
		}
		won(t, other)
	})
}

// A function that never returns costs its own entry, and nothing else on the lease.
func TestWorkThatDoesNotDrainLosesItsTermAndNothingElse(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		lk, err := locker.NewMutex(s.sess, "other").Lock(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		next := s.other(t)
		lease := s.sess.Lease()
		release := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		var term *election.Term
		var other <-chan result
		start := time.Now()
		el := s.election().With(opts{Value: "v", DrainTimeout: 7 * time.Second})
		err = el.RunWhileLeader(ctx, func(_ context.Context, held *election.Term) error {
			term = held
			other = campaignLater(deadline(t), next, "next")
			synctest.Wait()
			cancel()
			<-release
			return errWork
		})
		if waited := time.Since(start); waited != 7*time.Second {
			t.Errorf("it waited %v", waited)
		}
		var lost *holdfast.LostError
		if !errors.Is(err, election.ErrNotDrained) || !errors.As(err, &lost) || lost.Cause != holdfast.CauseNotDrained {
			t.Errorf("returned %v", err)
		}
		if !errors.As(term.Check(), &lost) || lost.Cause != holdfast.CauseNotDrained {
			t.Errorf("Check: %v", term.Check())
		}
		won(t, other)
		if kvs := s.entries(); len(kvs) != 1 || string(kvs[0].Key) == term.Key() {
			t.Errorf("its entry is still there: %v", kvs)
		}
		if _, err := etcdfence.NewWriter(term).Put(deadline(t), "data", "stale"); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("a fenced write of the abandoned function: %v", err)
		}
		if resp, err := term.Client().Txn(deadline(t)).If(term.Holding()...).Commit(); err != nil || resp.Succeeded {
			t.Errorf("such a write after the Check: %v, %v", resp, err)
		}
		if err := lk.Check(); err != nil || s.sess.Lease() != lease || len(s.srv.Keys("holdfast/lock/other/@/")) != 1 {
			t.Errorf("the lock on the same lease: %v; lease %x, then %x", err, lease, s.sess.Lease())
		}
		if lines := s.log.lines("level=WARN"); len(lines) != 1 || !strings.Contains(lines[0], "holdfast: lost") {
			t.Errorf("the loss must be logged, once: %q", lines)
		}
		close(release)
		synctest.Wait()
		if !s.log.has("abandoned function has returned") {
			t.Error("the return of the abandoned function was not logged")
		}
	})
}

// Invariant 15.
func TestPanicOfTheWorkContinuesAfterResigning(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		el := s.election().With(opts{Value: "v"})
		bug := errors.New("a bug of the user's")
		for name, run := range map[string]func(leadFn) error{
			"RunWhileLeader": func(fn leadFn) error { return el.RunWhileLeader(deadline(t), fn) },
			"Run":            func(fn leadFn) error { return el.Run(deadline(t), fn) },
		} {
			func() {
				defer func() {
					if p := recover(); p != any(bug) {
						t.Errorf("%s: recovered %v", name, p)
					}
					if kvs := s.srv.Keys(prefix); len(kvs) != 0 {
						t.Errorf("%s: not resigned before the panic continues: %v", name, kvs)
					}
				}()
				t.Errorf("%s returned %v", name, run(func(context.Context, *election.Term) error { panic(bug) }))
			}()
			if !s.log.has("TestPanicOfTheWorkContinuesAfterResigning") {
				t.Errorf("%s: the stack of the panic was not logged", name)
			}
			done := make(chan struct{})
			go func() { // ends by Goexit, as that of a failing test does
				defer close(done)
				_ = run(func(context.Context, *election.Term) error { runtime.Goexit(); return nil })
				t.Errorf("%s returned after a Goexit", name)
			}()
			<-done
			if kvs := s.srv.Keys(prefix); len(kvs) != 0 {
				t.Errorf("%s: not resigned after a Goexit: %v", name, kvs)
			}
		}
	})
}

// A panic is not swallowed. If no caller is left to receive it, it ends the
// process, as on any goroutine. This test runs its binary again to see that.
func TestPanicOfAnAbandonedFunctionEndsTheProcess(t *testing.T) {
	const child, bug = "HOLDFAST_TEST_ABANDONED", "a bug of the abandoned function's"
	if os.Getenv(child) == "" {
		t.Parallel()
		cmd := exec.Command(os.Args[0], "-test.run=^TestPanicOfAnAbandonedFunctionEndsTheProcess$")
		cmd.Env = append(os.Environ(), child+"=1")
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || !strings.Contains(string(out), "panic: "+bug) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	sess := open(t, etcdfake.New(etcdfake.Options{}).Client(t), session.Options{})
	el := election.New(sess, "x").With(opts{Value: "v", DrainTimeout: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	err := el.RunWhileLeader(ctx, func(context.Context, *election.Term) error {
		cancel()
		<-release
		panic(bug)
	})
	if !errors.Is(err, election.ErrNotDrained) {
		t.Fatal(err)
	}
	close(release)
	<-within(t, 10*time.Second).Done()
}
