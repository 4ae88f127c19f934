package admin_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
)

const candidates = "holdfast/election/led/@/"

// leads is one term of a process that runs election.Run or RunWhileLeader.
type leads struct {
	term        *election.Term
	begin, told time.Time
	cause       error
}

// runLater has a session lead term after term: its function drains for some time after its context has ended. The
// test waits for its end.
func runLater(t *testing.T, el *election.Election, drain time.Duration) (terms <-chan leads, ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	all, done := make(chan leads, 10), make(chan error, 1)
	go func() {
		defer close(done)
		done <- el.Run(ctx, func(ctx context.Context, term *election.Term) error {
			l := leads{term: term, begin: time.Now()}
			all <- l
			<-ctx.Done()
			l.told, l.cause = time.Now(), context.Cause(ctx)
			time.Sleep(drain)
			all <- l
			return nil
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return all, done
}

// A leader that is kicked ends its work, which takes its time, and resigns: the next one leads at once, without a lock
// delay. Run campaigns again, at the back.
func TestKickedLeaderDrainsThenResignsAndCampaignsAtTheBack(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		ops := newAdministrator(srv, "ops")
		deposed := make(chan error, 10)
		ofA, _ := runLater(t, election.New(a, "led").With(election.Options{
			Value: "v",
			Auditor: audit.Func(func(_ context.Context, r audit.Record) {
				if r.Event == audit.Lost {
					deposed <- r.Err
				}
			}),
		}), 10*time.Second)
		first := <-ofA
		ofB, _ := runLater(t, election.New(b, "led").With(election.Options{Value: "v"}), 0)
		time.Sleep(5 * time.Second)
		asked := time.Now()
		if err := ops.Kick(t.Context(), holdfast.KindElection, "led", first.term.Token(), "deploy"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(8 * time.Second)
		q, err := adm.Show(t.Context(), holdfast.KindElection, "led")
		h, _ := q.Holder()
		holds := h.Token == first.term.Token() && h.Value == "v"
		if err != nil || !holds || h.Notice.Reason != "deploy" || len(q.Entries) != 2 {
			t.Errorf("while the work drains: %+v, %v", q.Entries, err)
		}
		first = <-ofA
		drained := time.Now()
		var kick *holdfast.KickError
		if !errors.As(first.cause, &kick) || kick.By != "ops" || first.told.Sub(asked) > 2*time.Second {
			t.Errorf("told after %v: %v", first.told.Sub(asked), first.cause)
		}
		second := <-ofB
		if after := second.begin.Sub(drained); after > 500*time.Millisecond || second.begin.Before(drained) {
			t.Errorf("the next one leads %v after the work has ended", after)
		}
		if reason := <-deposed; !errors.Is(reason, holdfast.ErrLost) || !errors.As(reason, &kick) {
			t.Errorf("the record of the loss: %v", reason)
		}
		time.Sleep(2 * time.Second)
		kvs := srv.Keys(candidates)
		if len(kvs) != 2 || len(ops.records) != 1 || ops.records[0].Kind != holdfast.KindElection {
			t.Errorf("entries %v, records %+v", kvs, ops.records)
		}
		if err := ops.Kick(t.Context(), holdfast.KindElection, "led", second.term.Token(), "again"); err != nil {
			t.Error(err)
		}
		if third := <-ofA; third.term.Token() <= second.term.Token() || errors.Is(third.term.Check(), holdfast.ErrLost) {
			t.Errorf("the third term: %v, %v", third.term.Token(), third.term.Check())
		}
	})
}

// A function that does not end keeps the name for DrainTimeout, and no longer.
func TestKickedLeaderWhoseFunctionDoesNotEndIsGivenUpAfterDrainTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		ops := newAdministrator(srv, "ops")
		goOn := make(chan struct{})
		leading, done := make(chan *election.Term), make(chan error, 1)
		el := election.New(a, "led").With(election.Options{Value: "v", DrainTimeout: 5 * time.Second})
		go func() {
			done <- el.RunWhileLeader(t.Context(), func(_ context.Context, term *election.Term) error {
				leading <- term
				<-goOn
				return nil
			})
		}()
		term := <-leading
		time.Sleep(3 * time.Second)
		asked := time.Now()
		if err := ops.Kick(t.Context(), holdfast.KindElection, "led", term.Token(), "deploy"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4500 * time.Millisecond)
		if n := len(srv.Keys(candidates)); n != 1 {
			t.Errorf("%d entries before the end of DrainTimeout", n)
		}
		err := <-done
		var kick *holdfast.KickError
		if !errors.Is(err, election.ErrNotDrained) || !errors.As(err, &kick) || time.Since(asked) > 8*time.Second {
			t.Errorf("after %v: %v", time.Since(asked), err)
		}
		time.Sleep(time.Second)
		if n := len(srv.Keys(candidates)); n != 0 {
			t.Errorf("%d entries after DrainTimeout", n)
		}
		close(goOn)
		within, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		next, err := el.Campaign(within)
		if err != nil {
			t.Fatal(err)
		}
		_ = next.Resign(t.Context())
	})
}

// The term of a Campaign is the name's until Resign.
func TestKickedTermIsTakenUntilItIsResigned(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		ops := newAdministrator(srv, "ops")
		el := election.New(a, "led")
		term, err := el.With(election.Options{Value: "v"}).Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := ops.Kick(t.Context(), holdfast.KindElection, "led", term.Token(), "deploy"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := term.WithContext(t.Context())
		defer cancel()
		ends(t, term, holdfast.CauseKicked)
		time.Sleep(time.Minute)
		if n := len(srv.Keys(candidates)); n != 1 {
			t.Errorf("%d entries before the end", n)
		}
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if _, err := el.With(election.Options{Value: "w"}).Campaign(within); !errors.Is(err, holdfast.ErrReentrant) {
			t.Errorf("Campaign with the context of the term: %v", err)
		}
		if err := term.Proclaim(t.Context(), "w"); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Proclaim: %v", err)
		}
		if err := term.Resign(t.Context()); !errors.Is(err, holdfast.ErrLost) || !errors.As(err, new(*holdfast.KickError)) {
			t.Errorf("Resign: %v", err)
		}
		if n := len(srv.Keys(candidates)); n != 0 {
			t.Errorf("%d entries after Resign", n)
		}
	})
}

// A leader that hangs is removed: it is told first, and the next one leads although its function still runs.
func TestRemovedLeaderIsToldBeforeTheNextOneLeads(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		ops := newAdministrator(srv, "ops")
		ofA, _ := runLater(t, election.New(a, "led"), 20*time.Second)
		first := <-ofA
		ofB, _ := runLater(t, election.New(b, "led").With(election.Options{Value: "v"}), 0)
		time.Sleep(5 * time.Second)
		if err := ops.Remove(t.Context(), holdfast.KindElection, "led", first.term.Token(), "wedged"); err != nil {
			t.Fatal(err)
		}
		removed := time.Now()
		second := <-ofB
		if after := second.begin.Sub(removed); after < toldWithin-slack || after > toldWithin+slack {
			t.Errorf("the next one leads after %v", after)
		}
		first = <-ofA
		var lost *holdfast.LostError
		if !errors.As(first.cause, &lost) || lost.Cause != holdfast.CauseRemoved || !first.told.Before(second.begin) {
			t.Errorf("told %v before: %v", second.begin.Sub(first.told), first.cause)
		}
	})
}

// What a kick writes is no news to observers: the leader and its value are the same.
func TestKickIsNoNewLeaderToObservers(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		var observed []election.Leader
		ctx, cancel := context.WithCancel(t.Context())
		joined := make(chan struct{})
		el := election.New(a, "led").With(election.Options{Value: "v"})
		term, err := el.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer close(joined)
			for l, err := range el.Watch(ctx) {
				if err == nil {
					observed = append(observed, l)
				}
			}
		}()
		time.Sleep(5 * time.Second)
		ops := newAdministrator(srv, "ops")
		if err := ops.Kick(t.Context(), holdfast.KindElection, "led", term.Token(), "deploy"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		_ = term.Resign(t.Context())
		time.Sleep(time.Second)
		cancel()
		<-joined
		if len(observed) != 2 || observed[0].Token != term.Token() || observed[1].Token != 0 {
			t.Errorf("observed: %+v", observed)
		}
	})
}
