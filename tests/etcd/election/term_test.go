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
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
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
		if err != nil || leader.Value != value || leader.Token != term.Token() || leader.Lease != sess.Lease() ||
			term.Value() != "one" {
			t.Errorf("leader %.80v, %v after Proclaim(%.20q)", leader, err, value)
		}
	}
	var bad *holdfast.ArgumentError
	err := term.Proclaim(deadline(t), strings.Repeat("v", election.MaxValue+1))
	if !errors.As(err, &bad) || bad.Argument != "value" {
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

func TestLateProclaimDoesNotUndoALaterOne(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	el := newElection(t, link.Client(), session.Options{})
	term := campaign(t, el, "zero")
	late := link.Hold("Txn", isTxnThatPuts("one"))
	err := term.Proclaim(untilHeld(t, late), "one")
	if !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
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

// Here the late put arrives before the next Proclaim.
func TestProclaimSucceedsAfterAnEarlierOneArrivedLate(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	el := newElection(t, link.Client(), session.Options{})
	term := campaign(t, el, "zero")
	late := link.Hold("Txn", isTxnThatPuts("one"))
	if err := term.Proclaim(untilHeld(t, late), "one"); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
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
	if leader, err := el.Leader(deadline(t)); err != nil || leader.Value != "two" {
		t.Errorf("leader %+v, %v", leader, err)
	}
}

func TestProclaimWhoseReplyWasLostPutsOnce(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	term := campaign(t, newElection(t, link.Client(), session.Options{}), "one")
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

func TestConcurrentProclaimsAreAllCarriedOut(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	el := newElection(t, srv.Client(t), session.Options{})
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
	if n := len(srv.History(t, prefix)); n < 17 {
		t.Errorf("%d changes of the entry, want one for each value at least", n)
	}
}

// etcd's Proclaim fails without ending the leadership; here the term ends.
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
		// A session that hears that its key is gone has a quarter of LockDelay to ask whether the lease is.
		el := newElection(t, srv.Client(t), session.Options{TTL: 60 * time.Second, LockDelay: time.Minute})
		term := campaign(t, el, "v")
		remove(srv, srv.Client(t), term)
		err := term.Proclaim(deadline(t), "other")
		var lost *holdfast.LostError
		if !errors.As(err, &lost) || lost.Kind != holdfast.KindElection || lost.Name != "x" ||
			lost.Token != term.Token() {
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

// etcd issue 22123: after a failed Resign the election forgot that it led.
func TestResignThatFailedCanBeRetried(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	term := campaign(t, newElection(t, link.Client(), session.Options{TTL: 60 * time.Second}), "v")
	link.Stall("Txn")
	for range 2 {
		if err := term.Resign(within(t, 50*time.Millisecond)); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
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

func TestResignOfAnExLeaderIsANoOp(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	var removals atomic.Int32
	link.LoseRequest("Txn", 0, func(request any) bool {
		if testkit.IsTxnThatDeletes(request) {
			removals.Add(1)
		}
		return false
	})
	old := campaign(t, newElection(t, link.Client(), session.Options{}), "old")
	c := campaignLater(deadline(t), newElection(t, srv.Client(t), session.Options{}), "new")
	srv.WaitForKeys(t, prefix, 2)
	if _, err := srv.Client(t).Delete(deadline(t), old.Key()); err != nil {
		t.Fatal(err)
	}
	leader := won(t, c)
	<-old.Done()
	// One Txn would have deleted entry and claim. Since the entry has gone, etcd refuses it, and another deletes the
	// claim. On a busy machine copies come beside both.
	eventually(t, "the session has removed its claim", func() bool {
		return removals.Load() >= 2 && len(srv.Keys(t, "holdfast/election/x/@claim/")) == 1
	})
	sent := removals.Load()
	for range 2 {
		var lost *holdfast.LostError
		if err := old.Resign(deadline(t)); !errors.As(err, &lost) || lost.Cause != holdfast.CauseEntryDeleted {
			t.Errorf("Resign: %v", err)
		}
	}
	if n := removals.Load(); n != sent {
		t.Errorf("it sent %d removals", n-sent)
	}
	if kvs := srv.Keys(t, prefix); len(kvs) != 1 || string(kvs[0].Key) != leader.Key() || leader.Check() != nil {
		t.Errorf("the new leader is gone: %v, %v", kvs, leader.Check())
	}
}
