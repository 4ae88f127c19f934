package robustness

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

const entriesOfX = "holdfast/election/x/@/"

// quick notices within 300 ms that a member does not answer.
var quick = backoff.Policy{Attempt: 300 * time.Millisecond}

func campaign(t *testing.T, el *election.Election, value string) *election.Term {
	t.Helper()
	term, err := el.Campaign(deadline(t), value)
	if err != nil {
		t.Fatal(err)
	}
	return term
}

func campaignLater(t *testing.T, el *election.Election, value string) <-chan *election.Term {
	t.Helper()
	won := make(chan *election.Term, 1)
	go func() { // ends with its deadline
		term, err := el.Campaign(deadline(t), value)
		if err != nil {
			t.Error(err)
		}
		won <- term
	}()
	return won
}

// await waits for a state that has no event of its own.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ctx := deadline(t); !ok(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("did not happen: %s", what)
		}
	}
}

func restart(t *testing.T, members ...*etcdtest.Server) {
	t.Helper()
	for _, m := range members {
		if err := m.Restart(); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitRenewal waits until a renewal is confirmed that was sent after now.
func awaitRenewal(t *testing.T, sess *session.Session) {
	t.Helper()
	now := time.Now()
	await(t, "a renewal is confirmed", func() bool { return sess.Unconfirmed() < time.Since(now) })
}

// Scenario 29.
func TestTermOutlivesEtcdsLeader(t *testing.T) {
	t.Parallel()
	for range 2 { // a new cluster each time: one that has just lost a leader may take seconds to get over the next
		cluster := etcdtest.StartCluster(t, 3)
		opts := session.Options{TTL: 10 * time.Second, Retry: quick}
		sess := open(t, cluster.Client(t), opts)
		term := campaign(t, election.New(sess, "x"), "v")
		token := term.Token()
		waiting := campaignLater(t, election.New(open(t, cluster.Client(t), opts), "x"), "next")
		cluster.WaitForKeys(t, entriesOfX, 2)
		leader, err := cluster.Leader(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		leader.Stop()
		if err := term.Proclaim(deadline(t), "still here"); err != nil || term.Token() != token {
			t.Errorf("Proclaim by token %v, once %v: %v", term.Token(), token, err)
		}
		awaitRenewal(t, sess)
		if err := term.Check(); err != nil {
			t.Error(err)
		}
		if len(waiting) != 0 {
			t.Fatal("the next leads beside it")
		}
		if err := term.Resign(deadline(t)); err != nil {
			t.Error(err)
		}
		if next := <-waiting; next != nil && next.Token() <= token {
			t.Errorf("token %v after %v", next.Token(), token)
		}
	}
}

// Scenario 31.
func TestTermIsSuspendedWhileTheQuorumIsGoneAndGoesOn(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3)
	el := election.New(open(t, cluster.Client(t), session.Options{TTL: 14 * time.Second, Retry: quick}), "x")
	term := campaign(t, el, "v")
	token := term.Token()
	members := cluster.Members()[:2]
	for _, m := range members {
		m.Stop()
	}
	await(t, "it is suspended", func() bool { return errors.Is(term.Check(), session.ErrSuspended) })
	restart(t, members...)
	await(t, "it is connected again", func() bool { return !errors.Is(term.Check(), session.ErrSuspended) })
	if err := term.Check(); err != nil || term.Token() != token {
		t.Errorf("token %v, once %v: %v", term.Token(), token, err)
	}
	if l, err := el.Leader(deadline(t)); err != nil || l.Token != token {
		t.Errorf("leader %+v, %v", l, err)
	}
}

// Scenario 32.
func TestTermIsLostWithoutAQuorumThoughItsEntryMayStand(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3)
	sess := open(t, cluster.Client(t), session.Options{TTL: 2 * time.Second, Retry: quick})
	el := election.New(sess, "x")
	term := campaign(t, el, "v")
	stopped, stays := cluster.Members()[:2], cluster.Member(2)
	// Once it has the entry too, it shows it without asking anybody.
	here := stays.Client(t)
	stands := func() bool {
		resp, err := here.Get(deadline(t), term.Key(), clientv3.WithSerializable())
		return err == nil && len(resp.Kvs) == 1
	}
	await(t, "all members have the entry", stands)
	for _, m := range stopped {
		m.Stop()
	}
	<-term.Done()
	var lost *session.LostError
	if err := term.Check(); !errors.As(err, &lost) || lost.Cause != session.CauseExpired {
		t.Errorf("Check: %v", err)
	}
	if !stands() {
		t.Error("this test has gone blind: the entry is gone although nobody can remove it")
	}
	restart(t, stopped...)
	await(t, "the session is back", func() bool { return sess.Check() == nil })
	if err := term.Check(); !errors.Is(err, session.ErrLost) {
		t.Errorf("the term came back: %v", err)
	}
	if again := campaign(t, el, "v"); again.Token() <= term.Token() {
		t.Errorf("token %v after %v", again.Token(), term.Token())
	}
}

// Scenario 33: a member that has lost the others knows nothing that counts.
func TestMinorityDecidesNothing(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3)
	minority := cluster.Member(2)
	leader := campaign(t, election.New(open(t, cluster.Client(t), session.Options{TTL: 60 * time.Second, Retry: quick}), "x"), "leader")
	sess := open(t, minority.Client(t), session.Options{TTL: 60 * time.Second, Retry: quick, CloseTimeout: 100 * time.Millisecond})
	el := election.New(sess, "x").With(election.Options{MaxAge: 600 * time.Millisecond})
	o, err := el.Observer(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if v := o.Current(); v.Leader.Token != leader.Token() || !v.Trusted {
		t.Errorf("at first %+v", v)
	}
	stopped := cluster.Members()[:2]
	for _, m := range stopped {
		m.Stop()
	}
	soon := func() context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	within := func(what string, err error, start time.Time) {
		t.Helper()
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 10*time.Second {
			t.Errorf("%s: after %v: %v", what, time.Since(start), err)
		}
	}
	start := time.Now()
	_, err = el.Campaign(soon(), "v")
	within("Campaign", err, start)
	start = time.Now()
	_, err = el.Leader(soon())
	within("Leader", err, start)
	start = time.Now()
	for l, e := range el.Observe(soon()) {
		if e == nil {
			t.Errorf("Observe tells %+v", l)
		}
		err = e
	}
	within("Observe", err, start)
	await(t, "the observer is not trusted any more", func() bool { return !o.Current().Trusted })
	restart(t, stopped...)
	await(t, "it is trusted again", func() bool { return o.Current().Trusted })
	if v := o.Current(); v.Leader.Token != leader.Token() {
		t.Errorf("afterwards %+v", v)
	}
	// The campaign that failed left no candidate.
	if kvs := cluster.WaitForKeys(t, entriesOfX, 1); string(kvs[0].Key) != leader.Key() {
		t.Errorf("entries %v", kvs)
	}
}

// Scenario 36: members restart one after the other and are defragmented.
func TestTermOutlivesARollingRestartAndDefragmentation(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3)
	sess := open(t, cluster.Client(t), session.Options{TTL: 10 * time.Second, Retry: quick})
	term := campaign(t, election.New(sess, "x"), "v")
	token := term.Token()
	var told []election.Leader
	observing, stop := context.WithCancel(t.Context())
	observed := make(chan struct{})
	go func() { // joined below
		defer close(observed)
		for l, err := range election.New(open(t, cluster.Client(t), session.Options{TTL: 60 * time.Second, Retry: quick}), "x").Observe(observing) {
			if err == nil {
				told = append(told, l)
			}
		}
	}()
	for i, m := range cluster.Members() {
		m.Stop()
		restart(t, m)
		own := m.Client(t)
		await(t, "the member serves again", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := own.Get(ctx, "x")
			return err == nil
		})
		if _, err := own.Defragment(deadline(t), m.Endpoints()[0]); err != nil {
			t.Error(err)
		}
		cluster.Compact(t)
		awaitRenewal(t, sess)
		if err := term.Check(); err != nil || term.Token() != token {
			t.Errorf("after member %d: token %v, once %v: %v", i, term.Token(), token, err)
		}
	}
	if err := term.Proclaim(deadline(t), "last"); err != nil {
		t.Error(err)
	}
	stop()
	<-observed
	if i := slices.IndexFunc(told, func(l election.Leader) bool { return l.Token != token }); i >= 0 || len(told) == 0 {
		t.Errorf("an observer was told %+v", told)
	}
}
