package election_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

func TestProclaimChangesTheValueAndNothingElse(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{})
	el := election.New(sess, "x")
	term := campaign(t, el, "one")
	for _, value := range []string{"two", "", "\x00\xff", strings.Repeat("v", election.MaxValue)} {
		if err := term.Proclaim(deadline(t), value); err != nil {
			t.Fatal(err)
		}
		leader, err := el.Leader(deadline(t))
		if err != nil || leader.Value != value || leader.Token != term.Token() || leader.Lease != sess.Lease() || term.Value() != value {
			t.Errorf("leader %.80v, %v after Proclaim(%.20q)", leader, err, value)
		}
	}
	var bad *holdfast.ArgumentError
	if err := term.Proclaim(deadline(t), strings.Repeat("v", election.MaxValue+1)); !errors.As(err, &bad) || bad.Argument != "value" {
		t.Errorf("a value too large: %v", err)
	}
	resign(t, term)
	if kvs := srv.Keys(t, prefix); len(kvs) != 0 {
		t.Errorf("after Resign: %v", kvs)
	}
	if err := term.Proclaim(deadline(t), "late"); err != holdfast.ErrReleased {
		t.Errorf("Proclaim after Resign: %v", err)
	}
}

// A put that comes late must not undo a later one.
func TestLateProclaimDoesNotUndoALaterOne(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	el := election.New(open(t, link.Client(), session.Options{Retry: quickAttempts}), "x")
	term := campaign(t, el, "zero")
	late := link.Hold("Txn", isTxnThatPuts("one"))
	err := term.Proclaim(soon(t, 50*time.Millisecond), "one")
	if !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Proclaim that was not answered: %v", err)
	}
	if err := term.Proclaim(deadline(t), "two"); err != nil {
		t.Fatal(err)
	}
	late.Deliver()
	<-late.Delivered()
	if leader, err := el.Leader(deadline(t)); err != nil || leader.Value != "two" {
		t.Errorf("leader %+v, %v", leader, err)
	}
}

// The same, with the late one arriving before.
func TestProclaimFindsThatAnEarlierOneArrivedAfterAll(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	el := election.New(open(t, link.Client(), session.Options{Retry: quickAttempts}), "x")
	term := campaign(t, el, "zero")
	late := link.Hold("Txn", isTxnThatPuts("one"))
	if err := term.Proclaim(soon(t, 50*time.Millisecond), "one"); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
		t.Errorf("Proclaim that was not answered: %v", err)
	}
	late.Deliver()
	<-late.Delivered()
	if leader, err := el.Leader(deadline(t)); err != nil || leader.Value != "one" {
		t.Errorf("leader %+v, %v", leader, err)
	}
	if err := term.Proclaim(deadline(t), "two"); err != nil {
		t.Fatal(err)
	}
	if leader, err := el.Leader(deadline(t)); err != nil || leader.Value != "two" || term.Value() != "two" {
		t.Errorf("leader %+v, %v", leader, err)
	}
}

func TestProclaimWhoseReplyWasLostPutsOnce(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	term := campaign(t, election.New(open(t, link.Client(), session.Options{}), "x"), "one")
	link.LoseReply("Txn", 1, codes.Unavailable, isTxnThatPuts("two"))
	if err := term.Proclaim(deadline(t), "two"); err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, ev := range srv.History(t, prefix) {
		values = append(values, candidate(ev.Kv.Value))
	}
	if fmt.Sprint(values) != "[one two]" {
		t.Errorf("history %v", values)
	}
}

func TestProclaimsOfManyGoroutinesEndWithTheValueThatStands(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	el := election.New(open(t, srv.Client(t), session.Options{}), "x")
	term := campaign(t, el, "v")
	ctx := deadline(t)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			if err := term.Proclaim(ctx, fmt.Sprint(i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if leader, err := el.Leader(ctx); err != nil || leader.Value != term.Value() {
		t.Errorf("leader %+v, %v; the term says %q", leader, err, term.Value())
	}
}

// Upstream proclaims into the void; here the term learns that it is over.
func TestProclaimWithoutAnEntryEndsTheTerm(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(*etcdtest.Server, *clientv3.Client, *election.Term){
		"entry deleted": func(_ *etcdtest.Server, cli *clientv3.Client, term *election.Term) {
			_, _ = cli.Delete(context.Background(), term.Key())
		},
		"entry deleted and put again": func(_ *etcdtest.Server, cli *clientv3.Client, term *election.Term) {
			_, _ = cli.Delete(context.Background(), term.Key())
			_, _ = cli.Put(context.Background(), term.Key(), "v")
		},
		"lease revoked": func(srv *etcdtest.Server, _ *clientv3.Client, term *election.Term) { srv.Revoke(t, term.Lease()) },
	} {
		srv := etcdtest.Start(t)
		term := campaign(t, election.New(open(t, srv.Client(t), session.Options{TTL: 60 * time.Second}), "x"), "v")
		remove(srv, srv.Client(t), term)
		err := term.Proclaim(deadline(t), "other")
		var lost *holdfast.LostError
		if !errors.As(err, &lost) || lost.Kind != "election" || lost.Name != "x" || lost.Token != int64(term.Token()) {
			t.Errorf("%s: Proclaim: %v", name, err)
		}
		cause := holdfast.CauseEntryDeleted
		if name == "lease revoked" {
			cause = holdfast.CauseRevoked
		}
		if !errors.As(term.Check(), &lost) || lost.Cause != cause {
			t.Errorf("%s: Check: %v", name, term.Check())
		}
		for _, kv := range srv.Keys(t, prefix) {
			if candidate(kv.Value) == "other" {
				t.Errorf("%s: proclaimed into %v", name, kv)
			}
		}
	}
}

// Upstream issue 22123: a Resign that failed forgot that it led.
func TestResignThatFailedCanBeRetried(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	term := campaign(t, election.New(open(t, link.Client(), session.Options{TTL: 60 * time.Second, Retry: quickAttempts}), "x"), "v")
	link.Stall("Txn")
	for range 2 {
		if err := term.Resign(soon(t, 50*time.Millisecond)); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("Resign that was not answered: %v", err)
		}
	}
	if term.Check() != holdfast.ErrReleased {
		t.Errorf("Check: %v", term.Check())
	}
	link.Heal()
	for range 2 {
		if err := term.Resign(deadline(t)); err != nil {
			t.Errorf("Resign again: %v", err)
		}
	}
	if kvs := srv.Keys(t, prefix); len(kvs) != 0 {
		t.Errorf("entries %v", kvs)
	}
}

// Scenario 27, its end.
func TestResignOfAnExLeaderIsANoOp(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	var removals atomic.Int32
	link.LoseRequest("Txn", 0, func(request any) bool {
		for _, op := range successOps(request) {
			if op.GetRequestDeleteRange() != nil {
				removals.Add(1)
			}
		}
		return false
	})
	old := campaign(t, election.New(open(t, link.Client(), session.Options{}), "x"), "old")
	c := campaignLater(deadline(t), election.New(open(t, srv.Client(t), session.Options{}), "x"), "new")
	srv.WaitForKeys(t, prefix, 2)
	if _, err := srv.Client(t).Delete(deadline(t), old.Key()); err != nil {
		t.Fatal(err)
	}
	leader := won(t, c)
	<-old.Done()
	eventually(t, "the session has cleared up, once", func() bool { return removals.Load() == 1 })
	for range 2 {
		var lost *holdfast.LostError
		if err := old.Resign(deadline(t)); !errors.As(err, &lost) || lost.Cause != holdfast.CauseEntryDeleted {
			t.Errorf("Resign: %v", err)
		}
	}
	if n := removals.Load(); n != 1 {
		t.Errorf("it sent %d removals", n-1)
	}
	if kvs := srv.Keys(t, prefix); len(kvs) != 1 || string(kvs[0].Key) != leader.Key() || leader.Check() != nil {
		t.Errorf("the new leader is gone: %v, %v", kvs, leader.Check())
	}
}

func TestResignOnADeadContextResigns(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	term := campaign(t, election.New(open(t, srv.Client(t), session.Options{}), "x"), "v")
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	if err := term.Resign(dead); err != nil {
		t.Error(err)
	}
	if kvs := srv.Keys(t, prefix); len(kvs) != 0 {
		t.Errorf("entries %v", kvs)
	}
}
