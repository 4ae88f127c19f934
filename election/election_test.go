package election_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

func TestCandidatesOfOneSessionAndOfSeveralLeadInTurn(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		first := campaign(t, s.election(), "a1")
		second := campaignLater(deadline(t), s.other(t), "b")
		synctest.Wait()
		third := campaignLater(deadline(t), s.election(), "a2") // queued in memory, behind the first
		synctest.Wait()
		resign(t, first)
		term := won(t, second)
		if len(third) != 0 || term.Token() <= first.Token() {
			t.Errorf("token %v after %v; the third has returned: %v", term.Token(), first.Token(), len(third) != 0)
		}
		resign(t, term)
		if last := won(t, third); last.Token() <= term.Token() || last.Value() != "a2" {
			t.Errorf("token %v after %v", last.Token(), term.Token())
		}
	})
}

// Invariants 7 and 8. Each candidate has a session, so that it has an entry and a
// watch of its own; they share one link, which counts what they send.
func TestTwoHundredCandidatesLeadInTurnAndEachIsWokenOnce(t *testing.T) {
	t.Parallel()
	candidates := 200
	if bubble.Race {
		candidates = 100 // "long" in CI has all of them, without the race detector
	}
	bubble.Test(t, func(t *testing.T) {
		srv := newServer(t)
		link := srv.Link()
		link.Delay(time.Millisecond)
		long := session.Options{TTL: 600 * time.Second} // no renewal during the test
		els := make([]*election.Election, candidates)
		for i := range els {
			els[i] = election.New(open(t, link.Client(), long), "x")
		}
		leader := campaign(t, election.New(open(t, srv.Client(t), long), "x"), "first")
		time.Sleep(time.Second) // the watches of the session keys are created
		before := link.Count()
		sent := func() map[string]int {
			now := link.Count()
			for method, n := range before {
				now[method] -= n
			}
			before = link.Count()
			maps.DeleteFunc(now, func(_ string, n int) bool { return n == 0 })
			return now
		}

		var mu sync.Mutex
		var order []holdfast.Token
		var all sync.WaitGroup
		for _, el := range els {
			all.Go(func() {
				term, err := el.WithValue("v").Campaign(deadline(t))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, term.Token())
				mu.Unlock()
				resign(t, term)
			})
		}
		time.Sleep(time.Second)
		want := map[string]int{"Txn": 2 * candidates, "Watch": candidates}
		if got := sent(); !maps.Equal(got, want) {
			t.Errorf("to queue, %d candidates sent %v, want %v", candidates, got, want)
		}
		resign(t, leader)
		all.Wait()
		if len(order) != candidates || !slices.IsSorted(order) {
			t.Errorf("%d led, in the order of their entries: %v", len(order), slices.IsSorted(order))
		}
		// Each is woken by its watch, reads once whether it leads, and resigns.
		if got, want := sent(), map[string]int{"Txn": 2 * candidates}; !maps.Equal(got, want) {
			t.Errorf("to lead in turn, %d candidates sent %v, want %v", candidates, got, want)
		}
	})
}

func TestZeroElectionReturnsAnErrorAndDoesNotPanic(t *testing.T) {
	t.Parallel()
	nothing := func(context.Context, *election.Term) error { return nil }
	zero := (&election.Election{}).With(opts{Value: "v"})
	for what, err := range map[string]error{
		"Campaign":       func() error { _, err := zero.Campaign(t.Context()); return err }(),
		"Run":            zero.Run(t.Context(), nothing),
		"RunWhileLeader": zero.With(opts{Value: "v"}).RunWhileLeader(t.Context(), nothing),
		"Leader":         func() error { _, err := zero.Leader(t.Context()); return err }(),
		"Observer":       func() error { _, err := zero.Observer(t.Context()); return err }(),
		"Watch": func() (last error) {
			for _, err := range zero.Watch(t.Context()) {
				last = err
			}
			return last
		}(),
	} {
		var argument *holdfast.ArgumentError
		if !errors.As(err, &argument) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if zero.Name() != "" {
		t.Errorf("name %q", zero.Name())
	}
}

func TestBadInputIsRefusedBeforeAnyRPC(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		sess := open(t, s.link.Client(), session.Options{TTL: 600 * time.Second}) // no renewal during the test
		_ = s.sess.Close(deadline(t))
		good := election.New(sess, "good")
		fn := func(context.Context, *election.Term) error { t.Error("fn was called"); return nil }
		tooLarge := strings.Repeat("v", election.MaxValue+1)
		ctx := within(t, 5*time.Second)
		synctest.Wait()
		before := s.link.Count()

		calls := map[string]func(el *election.Election, ctx context.Context, value string) error{
			"Campaign": func(el *election.Election, ctx context.Context, value string) error {
				_, err := el.WithValue(value).Campaign(ctx)
				return err
			},
			"RunWhileLeader": func(el *election.Election, ctx context.Context, value string) error {
				return el.WithValue(value).RunWhileLeader(ctx, fn)
			},
			"Run": func(el *election.Election, ctx context.Context, value string) error {
				return el.WithValue(value).Run(ctx, fn)
			},
			"Leader": func(el *election.Election, ctx context.Context, _ string) error {
				_, err := el.Leader(ctx)
				return err
			},
			"Observer": func(el *election.Election, ctx context.Context, _ string) error {
				_, err := el.Observer(ctx)
				return err
			},
			"Watch": func(el *election.Election, ctx context.Context, _ string) (err error) {
				n := 0
				for _, err = range el.Watch(ctx) {
					n++
				}
				if n != 1 {
					t.Errorf("Watch yielded %d pairs", n)
				}
				return err
			},
		}
		names := map[string]*election.Election{
			"empty name":      election.New(sess, ""),
			"empty segment":   election.New(sess, "a//b"),
			"leading slash":   election.New(sess, "/a"),
			"reserved":        election.New(sess, "a/@/b"),
			"name too long":   election.New(sess, strings.Repeat("n", 513)),
			"empty prefix":    election.NewAt(sess, ""),
			"prefix too long": election.NewAt(sess, strings.Repeat("n", 513)),
		}
		options := map[string]election.Options{
			"Options.DrainTimeout": {DrainTimeout: -1},
			"Options.MaxAge":       {MaxAge: time.Millisecond},
			"Options.Retry":        {Retry: backoff.Policy{Initial: -1}},
		}
		argument := func(what, want string, err error) {
			t.Helper()
			var bad *holdfast.ArgumentError
			if !errors.As(err, &bad) || bad.Argument != want {
				t.Errorf("%s: %v, want an ArgumentError for %s", what, err, want)
			}
		}
		for name, call := range calls {
			for what, el := range names {
				var bad *holdfast.NameError
				if err := call(el, ctx, "v"); !errors.As(err, &bad) {
					t.Errorf("%s, %s: %v, want a NameError", name, what, err)
				}
			}
			for field, o := range options {
				argument(name, field, call(good.With(o), ctx, "v"))
			}
			argument(name+" without a context", "ctx", call(good, nil, "v")) //nolint:staticcheck // nil is the bad input
			argument(name+" without a session", "sess", call(election.New(nil, "x"), ctx, "v"))
		}
		for _, name := range []string{"Campaign", "RunWhileLeader", "Run"} {
			err := calls[name](good, ctx, tooLarge)
			argument(name+" with a large value", "Options.Value", err)
			var failed *view.AcquireError
			if !errors.As(err, &failed) || failed.Name != "good" || failed.Lease != sess.Lease() ||
				failed.State != holdfast.Connected {
				t.Errorf("%s: %+v, want an AcquireError", name, err)
			}
		}
		argument("RunWhileLeader", "fn", good.WithValue("v").RunWhileLeader(ctx, nil))
		argument("Run", "fn", good.WithValue("v").Run(ctx, nil))
		if err := election.CheckName("a//b"); err == nil {
			t.Error("CheckName accepts an empty segment")
		}
		if sent := s.link.Count(); !maps.Equal(sent, before) {
			t.Errorf("RPCs were sent: %v, before %v", sent, before)
		}
		err := good.WithValue(tooLarge[1:]).RunWhileLeader(deadline(t),
			func(context.Context, *election.Term) error { return nil })
		if err != nil {
			t.Errorf("a value of MaxValue bytes: %v", err)
		}
	})
}

// etcd issue 6127 and others: a call that could only wait for itself is refused.
func TestCampaignWithAContextOfALiveTermIsReentrant(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		el := s.election().With(opts{Value: "v"})
		term := campaign(t, el, "v")
		ctx, cancel := term.WithContext(deadline(t))
		defer cancel()
		nothing := func(context.Context, *election.Term) error { return nil }
		for name, err := range map[string]error{
			"Campaign":       func() error { _, err := s.election().With(opts{Value: "v"}).Campaign(ctx); return err }(),
			"RunWhileLeader": el.RunWhileLeader(ctx, nothing),
			"Run":            el.Run(ctx, nothing),
		} {
			var failed *view.AcquireError
			if !errors.Is(err, holdfast.ErrReentrant) || !errors.As(err, &failed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if term.Check() != nil {
			t.Errorf("the term has ended: %v", term.Check())
		}
		if _, err := election.New(s.sess, "y").With(opts{Value: "v"}).Campaign(ctx); err != nil {
			t.Errorf("another election: %v", err)
		}
		resign(t, term)
		if _, err := el.Campaign(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("after the term: %v", err)
		}
	})
}
