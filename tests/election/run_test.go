package election_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/session"
)

var errWork = errors.New("the work failed")

func TestRunLeadsTermAfterTermUntilFnFails(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{TTL: 2 * time.Second})
	var tokens []fencing.Token
	err := election.New(sess, "x").Run(deadline(t), "v", func(ctx context.Context, term *election.Term) error {
		if errors.Is(term.Check(), holdfast.ErrLost) || len(tokens) > 0 && term.Token() <= tokens[len(tokens)-1] {
			t.Errorf("term %d: token %v after %v, %v", len(tokens), term.Token(), tokens, term.Check())
		}
		tokens = append(tokens, term.Token())
		switch len(tokens) {
		case 1:
			return nil
		case 2: // a loss, said as such
			srv.Revoke(t, term.Lease())
			<-ctx.Done()
			return context.Cause(ctx)
		case 3: // a loss, and an error that came of it
			srv.Revoke(t, term.Lease())
			<-ctx.Done()
			return errWork
		case 4: // it steps down by itself
			resign(t, term)
			return ctx.Err()
		case 5:
			return nil
		}
		return fmt.Errorf("term %d: %w", len(tokens), errWork)
	})
	if !errors.Is(err, errWork) || len(tokens) != 6 || errors.Is(err, holdfast.ErrLost) {
		t.Errorf("%d terms, %v", len(tokens), err)
	}
	if kvs := srv.Keys(t, prefix); len(kvs) != 0 {
		t.Errorf("entries %v", kvs)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	el := election.New(open(t, srv.Client(t), session.Options{}), "x").With(opts{DrainTimeout: 50 * time.Millisecond})
	release, returned := make(chan struct{}), make(chan struct{})
	for name, tc := range map[string]struct {
		fn   func(ctx context.Context) error
		want error
	}{
		"fn returns nil":         {func(context.Context) error { return nil }, context.Canceled},
		"fn returns ctx's error": {func(ctx context.Context) error { return ctx.Err() }, context.Canceled},
		"fn returns its own":     {func(context.Context) error { return errWork }, errWork},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		err := el.Run(ctx, "v", func(ctx context.Context, _ *election.Term) error { cancel(); <-ctx.Done(); return tc.fn(ctx) })
		if err != tc.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Run("while it is queued", func(t *testing.T) {
		leader := campaign(t, el, "leader")
		if err := el.Run(soon(t, 20*time.Millisecond), "v", func(context.Context, *election.Term) error { t.Error("ran"); return nil }); err != context.DeadlineExceeded {
			t.Error(err)
		}
		resign(t, leader)
	})
	t.Run("fn does not return", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		err := el.Run(ctx, "v", func(context.Context, *election.Term) error {
			defer close(returned)
			cancel()
			<-release
			return nil
		})
		if !errors.Is(err, election.ErrNotDrained) {
			t.Error(err)
		}
		if kvs := srv.Keys(t, prefix); len(kvs) != 0 {
			t.Errorf("entries %v", kvs)
		}
		if err := el.Run(soon(t, 20*time.Millisecond), "v", func(context.Context, *election.Term) error { t.Error("ran"); return nil }); !errors.Is(err, election.ErrNotDrained) {
			t.Errorf("Run beside a straggler: %v", err)
		}
		close(release)
		<-returned
	})
	t.Run("the session is closed", func(t *testing.T) {
		sess := open(t, srv.Client(t), session.Options{})
		err := election.New(sess, "y").Run(deadline(t), "v", func(ctx context.Context, _ *election.Term) error {
			_ = sess.Close(deadline(t))
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, holdfast.ErrClosed) {
			t.Error(err)
		}
	})
	t.Run("the session stays lost", func(t *testing.T) {
		sess := open(t, srv.Client(t), session.Options{TTL: 2 * time.Second, StayLost: true})
		err := election.New(sess, "y").Run(deadline(t), "v", func(ctx context.Context, term *election.Term) error {
			srv.Revoke(t, term.Lease())
			<-ctx.Done()
			return nil
		})
		var failed *election.CampaignError
		if !errors.Is(err, holdfast.ErrLost) || !errors.As(err, &failed) {
			t.Error(err)
		}
	})
}

// Run goes on after a function that would not stop, but not beside it.
func TestRunWaitsForAStragglerBeforeTheNextTerm(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{TTL: 2 * time.Second})
	el := election.New(sess, "x").With(opts{DrainTimeout: 20 * time.Millisecond})
	var running, terms atomic.Int32
	lost, release := make(chan struct{}), make(chan struct{})
	done := later(func() error {
		return el.Run(deadline(t), "v", func(_ context.Context, term *election.Term) error {
			if n := running.Add(1); n != 1 {
				t.Errorf("%d functions run", n)
			}
			defer running.Add(-1)
			if terms.Add(1) > 1 {
				return errWork
			}
			srv.Revoke(t, term.Lease())
			<-term.Done()
			close(lost)
			<-release
			return nil
		})
	})
	await(t, "the term is lost", lost)
	eventually(t, "the session is back", func() bool { return sess.Check() == nil })
	// It could lead now; it must not even be a candidate.
	for range 10 {
		if kvs := srv.Keys(t, prefix); len(kvs) != 0 {
			t.Errorf("a candidate beside its own straggler: %v", kvs)
		}
	}
	close(release)
	if err := await(t, "the next term", done); err != errWork || terms.Load() != 2 {
		t.Errorf("%d terms, %v", terms.Load(), err)
	}
}

// Many Runs on one session, whose lease is revoked again and again: never two
// functions at once.
func TestLocalFunctionsNeverOverlap(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{TTL: 2 * time.Second})
	var running, terms atomic.Int32
	ctx, cancel := context.WithCancel(deadline(t))
	defer cancel()
	var all sync.WaitGroup
	for i := range 4 {
		el := election.New(sess, "x").With(opts{DrainTimeout: time.Duration(i+1) * 10 * time.Millisecond})
		all.Go(func() {
			err := el.Run(ctx, "v", func(_ context.Context, term *election.Term) error {
				if n := running.Add(1); n != 1 {
					t.Errorf("%d functions run", n)
				}
				defer running.Add(-1)
				n := terms.Add(1)
				switch {
				case n >= 24:
					cancel()
				case n%8 == 0:
					srv.Revoke(t, term.Lease())
					<-term.Done()
				case n%3 == 0:
					_ = term.Resign(ctx)
				}
				<-time.After(time.Duration(n%4) * 10 * time.Millisecond) // works on for a while, deaf
				return nil
			})
			if err != context.Canceled && !errors.Is(err, election.ErrNotDrained) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	eventually(t, "stragglers have returned", func() bool { return running.Load() == 0 })
	if terms.Load() < 24 {
		t.Errorf("%d terms", terms.Load())
	}
}

func TestRunTriesAgainWhenACampaignFails(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	var log logs
	sess := open(t, srv.Client(t), session.Options{Logger: log.logger()})
	cli := srv.Client(t)
	if _, err := cli.Put(deadline(t), "holdfast/epoch", "junk"); err != nil { // what no retry inside Campaign mends
		t.Fatal(err)
	}
	done := later(func() error {
		return election.New(sess, "x").Run(deadline(t), "v", func(context.Context, *election.Term) error { return errWork })
	})
	eventually(t, "it has failed and said so", func() bool { return log.has("a campaign failed") })
	if _, err := cli.Delete(deadline(t), "holdfast/epoch"); err != nil {
		t.Fatal(err)
	}
	if err := await(t, "it leads", done); err != errWork {
		t.Error(err)
	}
}

// story is what callbacks were told, in order.
type story struct {
	mu   sync.Mutex
	said []string
}

func (s *story) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

func (s *story) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.said)
}

func (s *story) has(line string) bool { return slices.Contains(s.all(), line) }

func TestCallbacksTellTermsInOrder(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{TTL: 2 * time.Second})
	var told story
	number := make(map[*election.Term]int) // by callbacks only, which come one at a time
	el := election.New(sess, "x").With(opts{
		OnElected: func(term *election.Term) { number[term] = len(number) + 1; told.say("elected %d", number[term]) },
		OnDeposed: func(term *election.Term, reason error) {
			var lost *holdfast.LostError
			switch {
			case errors.As(reason, &lost):
				told.say("deposed %d: %v", number[term], lost.Cause)
			case reason == holdfast.ErrReleased:
				told.say("deposed %d: released", number[term])
			default:
				told.say("deposed %d: %v", number[term], reason)
			}
			if n := number[term]; n == 2 {
				panic("a bug of the user's")
			}
		},
	})
	terms := 0
	err := el.Run(deadline(t), "v", func(_ context.Context, term *election.Term) error {
		switch terms++; terms {
		case 1:
			return nil
		case 2:
			srv.Revoke(t, term.Lease())
			// Told while fn still runs, not when it has at last returned.
			eventually(t, "deposed is told", func() bool { return told.has("deposed 2: revoked") })
			return nil
		}
		return errWork
	})
	if err != errWork {
		t.Error(err)
	}
	want := []string{"elected 1", "deposed 1: released", "elected 2", "deposed 2: revoked", "elected 3", "deposed 3: released"}
	if got := told.all(); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}

func TestDeposedIsNeverToldWithoutAnElected(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	leader := campaign(t, election.New(open(t, srv.Client(t), session.Options{}), "x"), "leader")
	sess := open(t, srv.Client(t), session.Options{TTL: 2 * time.Second})
	var told story
	el := election.New(sess, "x").With(opts{
		OnElected: func(*election.Term) { told.say("elected") },
		OnDeposed: func(*election.Term, error) { told.say("deposed") },
	})
	ctx, cancel := context.WithCancel(deadline(t))
	done := later(func() error { return el.Run(ctx, "v", func(context.Context, *election.Term) error { return nil }) })
	old := srv.WaitForKeys(t, prefix, 2)[1]
	srv.Revoke(t, sess.Lease()) // a loss, but of a candidate
	eventually(t, "it queues again", func() bool {
		kvs := srv.Keys(t, prefix)
		return len(kvs) == 2 && kvs[1].Lease != old.Lease
	})
	cancel()
	if err := await(t, "Run returns", done); err != context.Canceled {
		t.Error(err)
	}
	if got := told.all(); len(got) != 0 {
		t.Errorf("told %q", got)
	}
	resign(t, leader)
}

// Invariant 11.
func TestCallbackThatBlocksDelaysNothingButItself(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	var log logs
	sess := open(t, srv.Client(t), session.Options{TTL: 2 * time.Second, Logger: log.logger()})
	release, deposed := make(chan struct{}), make(chan struct{}, 16)
	el := election.New(sess, "x").With(opts{
		DrainTimeout: 50 * time.Millisecond,
		OnElected:    func(*election.Term) { <-release },
		OnDeposed:    func(*election.Term, error) { deposed <- struct{}{} },
	})
	terms := 0
	err := el.Run(deadline(t), "v", func(_ context.Context, term *election.Term) error {
		if terms++; terms < 4 {
			return nil
		}
		eventually(t, "renewals go on", func() bool { return sess.Unconfirmed() < 100*time.Millisecond && term.Check() == nil })
		return errWork
	})
	if err != errWork || terms != 4 {
		t.Errorf("%d terms, %v", terms, err)
	}
	if !log.has("callback=OnElected") {
		t.Error("nobody was told which callback is stuck")
	}
	close(release)
	for range 4 {
		await(t, "deposed is told after all", deposed)
	}
}

func TestNewLeadersAreTold(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	var told story
	other := election.New(open(t, srv.Client(t), session.Options{}), "x")
	el := election.New(open(t, srv.Client(t), session.Options{}), "x").With(opts{
		OnNewLeader: func(l election.Leader) { told.say("%s", l.Value) },
	})
	first := campaign(t, other, "first")
	ctx, cancel := context.WithCancel(deadline(t))
	defer cancel()
	done := later(func() error {
		return el.Run(ctx, "second", func(_ context.Context, term *election.Term) error {
			eventually(t, "it hears of itself", func() bool { return told.has("second") })
			if err := term.Proclaim(deadline(t), "second, proclaimed"); err != nil {
				t.Error(err)
			}
			c := campaignLater(deadline(t), other, "third")
			srv.WaitForKeys(t, prefix, 2)
			resign(t, term)
			third := won(t, c)
			eventually(t, "it hears of the third", func() bool { return told.has("third") })
			resign(t, third)
			cancel()
			return errWork
		})
	})
	eventually(t, "it hears of the first", func() bool { return told.has("first") })
	resign(t, first)
	if err := await(t, "Run returns", done); err != errWork {
		t.Error(err)
	}
	if got := strings.Join(told.all(), ", "); got != "first, second, third" {
		t.Errorf("told %s", got)
	}
}
