package robustness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

const entriesOfX = "holdfast/election/x/@/"

func campaign(t *testing.T, el *election.Election, value string) *election.Term {
	t.Helper()
	term, err := el.With(election.Options{Value: value}).Campaign(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	return term
}

func campaignLater(t *testing.T, el *election.Election, value string) <-chan *election.Term {
	t.Helper()
	won := make(chan *election.Term, 1)
	go func() { // ends by its deadline
		term, err := el.With(election.Options{Value: value}).Campaign(throughout(t))
		if err != nil {
			t.Error(err)
		}
		won <- term
	}()
	return won
}

// Scenario 29.
func TestTermSurvivesEtcdLeaderFailure(t *testing.T) {
	t.Parallel()
	for n := range 2 { // each with a new cluster: one that has just lost a leader may take seconds to replace the next
		t.Run(fmt.Sprint("cluster ", n), func(t *testing.T) {
			t.Parallel()
			cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{DefaultTicks: true}) // stable on a busy machine
			opts := session.Options{TTL: surviving}
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
				t.Errorf("Proclaim with token %v, want %v: %v", term.Token(), token, err)
			}
			awaitRenewal(t, sess)
			if err := term.Check(); err != nil {
				t.Error(err)
			}
			if len(waiting) != 0 {
				t.Fatal("the next candidate leads at the same time")
			}
			if err := term.Resign(deadline(t)); err != nil {
				t.Error(err)
			}
			if next := <-waiting; next != nil && next.Token() <= token {
				t.Errorf("token %v after %v", next.Token(), token)
			}
		})
	}
}

// Scenario 31.
func TestTermIsSuspendedWithoutAQuorumAndResumes(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{DefaultTicks: true}) // stable on a busy machine
	el := election.New(open(t, cluster.Client(t), session.Options{TTL: surviving}), "x")
	term := campaign(t, el, "v")
	token := term.Token()
	members := cluster.Members()[:2]
	for _, m := range members {
		m.Stop()
	}
	await(t, "the term is suspended", func() bool { return errors.Is(term.Check(), holdfast.ErrSuspended) })
	restart(t, members...)
	await(t, "the term is connected again", func() bool { return !errors.Is(term.Check(), holdfast.ErrSuspended) })
	if err := term.Check(); err != nil || term.Token() != token {
		t.Errorf("token %v, want %v: %v", term.Token(), token, err)
	}
	if l, err := el.Leader(deadline(t)); err != nil || l.Token != token {
		t.Errorf("leader %+v, %v", l, err)
	}
}

// Scenario 32.
func TestTermIsLostWithoutAQuorumThoughItsEntryRemains(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{DefaultTicks: true}) // stable on a busy machine
	sess := open(t, cluster.Client(t), session.Options{TTL: 2 * time.Second})
	el := election.New(sess, "x")
	term := campaign(t, el, "v")
	stopped, stays := cluster.Members()[:2], cluster.Member(2).Client(t)
	await(t, "all members have the entry", func() bool { return hasKey(t, stays, term.Key()) })
	for _, m := range stopped {
		m.Stop()
	}
	<-term.Done()
	var lost *holdfast.LostError
	if err := term.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired {
		t.Errorf("Check: %v", err)
	}
	if !hasKey(t, stays, term.Key()) {
		t.Error("the test proves nothing: the entry is gone, though no quorum could delete it")
	}
	restart(t, stopped...)
	await(t, "the session is back", func() bool { return sess.Check() == nil })
	if err := term.Check(); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("Check of the lost term: %v", err)
	}
	if again := campaign(t, el, "v"); again.Token() <= term.Token() {
		t.Errorf("token %v after %v", again.Token(), term.Token())
	}
}

// Scenario 33: a leader of etcd that is cut off from the other members elects no leader of holdfast, answers no
// linearizable read, and no observer trusts what it says.
func TestMinorityMemberElectsNoLeader(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{DefaultTicks: true}) // stable on a busy machine
	minority, others := leaderAndOthers(t, cluster)
	here := minority.Client(t)
	there := open(t, clientTo(t, others...), session.Options{TTL: 60 * time.Second})
	first := campaign(t, election.New(there, "x"), "first")
	sess := open(t, here, session.Options{TTL: 60 * time.Second, CloseTimeout: 100 * time.Millisecond})
	el := election.New(sess, "x").With(election.Options{Value: "v", MaxAge: 600 * time.Millisecond})
	o, err := el.Observer(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	var v election.Snapshot
	await(t, "the observer is trusted", func() bool { v = o.Current(); return v.Trusted }) // its first read may be slow
	if v.Leader.Token != first.Token() {
		t.Errorf("before the partition: %+v", v)
	}

	cluster.Partition(minority)
	endsByDeadline(t, "Campaign", func(ctx context.Context) error {
		_, err := el.Campaign(ctx)
		return err
	})
	endsByDeadline(t, "Leader", func(ctx context.Context) error {
		_, err := el.Leader(ctx)
		return err
	})
	endsByDeadline(t, "Watch", func(ctx context.Context) (last error) {
		for l, err := range el.Watch(ctx) {
			if last = err; err == nil {
				t.Errorf("Watch yields %+v", l)
			}
		}
		return last
	})
	await(t, "the observer is no longer trusted", func() bool { return !o.Current().Trusted })
	// The majority elects another leader, of which the minority learns nothing.
	if err := first.Resign(deadline(t)); err != nil {
		t.Error(err)
	}
	next := campaign(t, election.New(there, "x"), "next")
	if !hasKey(t, here, first.Key()) {
		t.Error("the test proves nothing: the minority has received the write of the majority")
	}
	if v := o.Current(); v.Trusted {
		t.Errorf("the observer is trusted without a quorum: %+v", v)
	}

	cluster.Heal()
	await(t, "the observer is trusted again", func() bool { v = o.Current(); return v.Trusted })
	if v.Leader.Token != next.Token() {
		t.Errorf("after the partition: %+v", v)
	}
	// The campaign that failed has left no entry.
	if kvs := cluster.WaitForKeys(t, entriesOfX, 1); string(kvs[0].Key) != next.Key() {
		t.Errorf("entries %v", kvs)
	}
}

// Scenario 36.
func TestTermSurvivesARollingRestartAndAMemberReplacement(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{DefaultTicks: true}) // stable on a busy machine
	sess := open(t, cluster.Client(t), session.Options{TTL: surviving})
	term := campaign(t, election.New(sess, "x"), "v")
	token := term.Token()
	observer := election.New(open(t, cluster.Client(t), session.Options{TTL: 60 * time.Second}), "x")
	observed := make(chan []election.Leader, 1)
	go func() { // joined below
		var seen []election.Leader
		for l, err := range observer.Watch(throughout(t)) {
			if err == nil {
				seen = append(seen, l)
			}
			if l.Value == "last" {
				break
			}
		}
		observed <- seen
	}()
	maintain(t, cluster, func(step string) {
		awaitRenewal(t, sess)
		if err := term.Check(); err != nil || term.Token() != token {
			t.Errorf("after the %s: token %v, want %v: %v", step, term.Token(), token, err)
		}
	})
	if err := term.Proclaim(deadline(t), "last"); err != nil {
		t.Error(err)
	}
	seen := <-observed
	if len(seen) == 0 || seen[len(seen)-1].Value != "last" {
		t.Errorf("the observer did not see the last value: %+v", seen)
	}
	if slices.ContainsFunc(seen, func(l election.Leader) bool { return l.Token != token }) {
		t.Errorf("the observer saw another term: %+v", seen)
	}
}
