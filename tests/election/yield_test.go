package election_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

func yieldLater(ctx context.Context, term *election.Term) <-chan result {
	c := make(chan result, 1)
	go func() { // ends with ctx
		next, err := term.Yield(ctx)
		c <- result{next, err}
	}()
	return c
}

func TestYieldQueuesAtTheBackInOneTxn(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	a, b := open(t, srv.Client(t), session.Options{}), open(t, srv.Client(t), session.Options{})
	first := campaign(t, election.New(a, "x"), "a")
	if err := first.Proclaim(deadline(t), "a, proclaimed"); err != nil {
		t.Fatal(err)
	}
	other := campaignLater(deadline(t), election.New(b, "x"), "b")
	srv.WaitForKeys(t, prefix, 2)
	yielded := yieldLater(deadline(t), first)
	second := won(t, other)
	if first.Check() != holdfast.ErrReleased {
		t.Errorf("Check of the term that was yielded: %v", first.Check())
	}
	kvs := srv.Keys(t, prefix)
	if len(kvs) != 2 || candidate(kvs[1].Value) != "a, proclaimed" {
		t.Fatalf("entries %v", kvs)
	}
	if len(yielded) != 0 {
		t.Fatal("leads while another does")
	}
	left := false
	for _, ev := range srv.History(t, prefix) {
		if ev.Type == mvccpb.Event_DELETE && ev.Kv.ModRevision == kvs[1].CreateRevision {
			left = string(ev.Kv.Key) == first.Key()
		}
	}
	if !left {
		t.Error("leaving and queueing again were not one Txn")
	}
	resign(t, second)
	third := won(t, yielded)
	if int64(third.Token()) != kvs[1].CreateRevision || third.Token() <= second.Token() || third.Value() != "a, proclaimed" {
		t.Errorf("token %v, value %q", third.Token(), third.Value())
	}
}

func TestYieldWithNobodyElseLeadsAgainWithALargerToken(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	first := campaign(t, election.New(open(t, srv.Client(t), session.Options{}), "x"), "v")
	next, err := first.Yield(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	if next.Token() <= first.Token() || next.Check() != nil || first.Check() != holdfast.ErrReleased {
		t.Errorf("token %v after %v; %v, %v", next.Token(), first.Token(), next.Check(), first.Check())
	}
}

func TestYieldLetsCandidatesOfTheSameSessionGoFirst(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	el := election.New(open(t, srv.Client(t), session.Options{}), "x")
	first := campaign(t, el, "first")
	joined := &joinSignal{Context: deadline(t), joined: make(chan struct{})}
	local := campaignLater(joined, el, "second")
	<-joined.joined
	yielded := yieldLater(deadline(t), first)
	second := won(t, local)
	if len(yielded) != 0 {
		t.Fatal("leads while another does")
	}
	resign(t, second)
	if third := won(t, yielded); third.Value() != "first" || third.Token() <= second.Token() {
		t.Errorf("%q, token %v after %v", third.Value(), third.Token(), second.Token())
	}
}

// joinSignal tells when it is waited on: its caller stands in the line then.
type joinSignal struct {
	context.Context
	joined chan struct{}
}

func (j *joinSignal) Done() <-chan struct{} {
	select {
	case <-j.joined:
	default:
		close(j.joined)
	}
	return j.Context.Done()
}

func TestYieldOfATermThatHasEndedQueuesNothing(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	el := election.New(open(t, srv.Client(t), session.Options{TTL: 60 * time.Second}), "x")
	term := campaign(t, el, "v")
	resign(t, term)
	if _, err := term.Yield(deadline(t)); !errors.Is(err, holdfast.ErrReleased) {
		t.Errorf("after Resign: %v", err)
	}
	term = campaign(t, el, "v")
	srv.Revoke(t, term.Lease())
	if err := term.Proclaim(deadline(t), "v"); !errors.Is(err, holdfast.ErrLost) { // it finds out
		t.Error(err)
	}
	if _, err := term.Yield(deadline(t)); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("after a loss: %v", err)
	}
	if kvs := srv.Keys(t, prefix); len(kvs) != 0 {
		t.Errorf("entries %v", kvs)
	}
}

func TestYieldWhoseContextEndsLeavesNoCandidate(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	a, b := open(t, srv.Client(t), session.Options{}), open(t, srv.Client(t), session.Options{})
	first := campaign(t, election.New(a, "x"), "a")

	dead, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := first.Yield(dead); !errors.Is(err, context.Canceled) || first.Check() != nil {
		t.Errorf("on a dead context: %v; the term: %v", err, first.Check())
	}

	other := campaignLater(deadline(t), election.New(b, "x"), "b")
	srv.WaitForKeys(t, prefix, 2)
	ctx, cancel := context.WithCancel(t.Context())
	yielded := yieldLater(ctx, first)
	second := won(t, other)
	cancel()
	if r := await(t, "Yield returns", yielded); !errors.Is(r.err, context.Canceled) {
		t.Errorf("%v", r.err)
	}
	// The Txn that put it for Yield may be unanswered yet.
	if kvs := srv.WaitForKeys(t, prefix, 1); string(kvs[0].Key) != second.Key() {
		t.Errorf("entries %v", kvs)
	}
	if first.Check() != holdfast.ErrReleased {
		t.Errorf("Check: %v", first.Check())
	}
}

// A term in which a function of Run or RunWhileLeader works is that function's:
// yielded with another context, it would go on without it, and nobody would
// work for the term that follows.
func TestYieldOfATermAFunctionRunsInIsRefused(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	el := election.New(open(t, srv.Client(t), session.Options{}), "x")
	refused := func(term *election.Term) {
		t.Helper()
		_, err := term.Yield(deadline(t))
		var failed *election.CampaignError
		if !errors.Is(err, election.ErrFunctionRuns) || !errors.As(err, &failed) {
			t.Errorf("%v", err)
		}
		if term.Check() != nil || len(srv.Keys(t, prefix)) != 1 {
			t.Errorf("the term: %v; entries %v", term.Check(), srv.Keys(t, prefix))
		}
	}
	fn := func(_ context.Context, term *election.Term) error { refused(term); return errWork }
	if err := el.Run(deadline(t), "v", fn); !errors.Is(err, errWork) {
		t.Error(err)
	}
	if err := el.RunWhileLeader(deadline(t), "v", fn); !errors.Is(err, errWork) {
		t.Error(err)
	}
}
