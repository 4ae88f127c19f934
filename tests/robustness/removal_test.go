package robustness

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
)

func administrator(cli *clientv3.Client) *admin.Client {
	return admin.New(cli, admin.Options{Owner: "ops", Auditor: testkit.Unrecorded})
}

// endedBy waits until a lock has ended, which has to be for that cause.
func endedBy(t *testing.T, lk *locker.Lock, cause holdfast.Cause) {
	t.Helper()
	select {
	case <-lk.Done():
	case <-deadline(t).Done():
		t.Fatalf("the holder was not told: %v", lk.Check())
	}
	var lost *holdfast.LostError
	if err := lk.Check(); !errors.As(err, &lost) || lost.Cause != cause {
		t.Errorf("Check: %v, want cause %v", err, cause)
	}
}

// Scenario 56: the administrator and the holder are at different members of a cluster, one of which is cut off from the
// others in every other round.
func TestKickedHolderIsToldInARealCluster(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3)
	var told durations
	for round := range rounds.Of(10, 2) {
		leader, err := cluster.Leader(deadline(t))
		mustSucceed(t, err)
		sess := open(t, cluster.Client(t), session.Options{})
		name := fmt.Sprint("kicked-", round)
		working, done := make(chan *locker.Lock), make(chan error, 1)
		go func() {
			done <- locker.NewMutex(sess, name).Do(deadline(t), func(ctx context.Context, lk *locker.Lock) error {
				working <- lk
				<-ctx.Done()
				return nil
			})
		}()
		lk := <-working
		if round%2 == 1 {
			for _, member := range cluster.Members() {
				if member != leader {
					cluster.Partition(member)
					break
				}
			}
		}
		ops := administrator(leader.Client(t))
		if err := ops.Kick(deadline(t), holdfast.KindLock, name, lk.Token(), "deploy"); err != nil {
			t.Fatal(err)
		}
		asked := time.Now()
		endedBy(t, lk, holdfast.CauseKicked)
		told.add(time.Since(asked))
		var kick *holdfast.KickError
		if err := <-done; !errors.As(err, &kick) || kick.By != "ops" || kick.Reason != "deploy" {
			t.Errorf("Do: %v", err)
		}
		cluster.Heal()
		next, err := locker.NewMutex(sess, name).TryLock(deadline(t)) // Do has freed the name
		if err != nil {
			t.Fatal(err)
		}
		mustSucceed(t, release(deadline(t), next))
	}
	t.Logf("told after %s", told.summary())
}

// Scenario 57, with waiters of both kinds: no next holder before the former one was told.
func TestRemovedHolderIsToldBeforeOthersHoldInARealEtcd(t *testing.T) {
	t.Parallel()
	const prefix = "/legacy/removed"
	srv := etcdtest.Start(t)
	lk, err := locker.NewMutexAt(open(t, srv.Client(t), session.Options{}), prefix).Lock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	upstream, err := concurrency.NewSession(srv.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = upstream.Close() })
	waits := func(lock func(ctx context.Context) error) <-chan error {
		held := make(chan error, 1)
		go func() {
			err := lock(deadline(t))
			if lk.Check() == nil {
				err = errors.New("a waiter holds before the former holder was told")
			}
			held <- err
		}()
		return held
	}
	theirs := concurrency.NewMutex(upstream, prefix)
	foreign := waits(theirs.Lock)
	srv.WaitForKeys(t, prefix+"/", 2)
	ours := locker.NewMutexAt(open(t, srv.Client(t), session.Options{}), prefix)
	var next *locker.Lock
	own := waits(func(ctx context.Context) (err error) { next, err = ours.Lock(ctx); return err })
	srv.WaitForKeys(t, prefix+"/", 3)

	adm := administrator(srv.Client(t))
	mustSucceed(t, adm.Remove(deadline(t), admin.LockAt, prefix, lk.Token(), "wedged"))
	endedBy(t, lk, holdfast.CauseRemoved)
	mustSucceed(t, <-foreign)
	token := holdfast.Token(testkit.CreateRevision(t, upstream.Client(), theirs.Key()))
	err = adm.Kick(deadline(t), admin.LockAt, prefix, token, "deploy")
	if !errors.Is(err, admin.ErrNotTold) {
		t.Errorf("kick of etcd's own mutex: %v", err)
	}
	mustSucceed(t, theirs.Unlock(deadline(t)))
	mustSucceed(t, <-own)
	mustSucceed(t, release(deadline(t), next))
}

// Scenario 57: a holder that is cut off is not told. Its lock is free before its lease ends. Only the fence stops it,
// and it is told as soon as it reaches etcd.
func TestRemovedHolderThatIsCutOffIsFencedInARealEtcd(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	// A long TTL, so that it is not what frees the name, and a slow machine does not suspend the session meanwhile.
	sess := open(t, link.Client(), session.Options{TTL: 10 * time.Minute})
	lk := lock(t, sess, "cut-off")
	waiter := holdLater(t, "lock", open(t, srv.Client(t), session.Options{}), "cut-off")
	srv.WaitForKeys(t, "holdfast/lock/cut-off/@/", 2)
	link.BlackHole()
	mustSucceed(t, administrator(srv.Client(t)).Remove(deadline(t), holdfast.KindLock, "cut-off", lk.Token(), "wedged"))
	next := <-waiter
	if next == nil {
		return
	}
	if n := len(srv.Keys(t, fmt.Sprintf("holdfast/session/%x", int64(sess.Lease())))); n != 1 {
		t.Error("the name became free by the end of the holder's lease")
	}
	_, err := etcdfence.NewWriter(next).Put(deadline(t), "cut-off/data", "new")
	mustSucceed(t, err)
	link.Heal()
	_, err = etcdfence.NewWriter(lk).Put(deadline(t), "cut-off/data", "stale")
	if !errors.Is(err, fencing.ErrStale) && !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("write of the former holder: %v", err)
	}
	endedBy(t, lk, holdfast.CauseEntryDeleted)
	_ = lk.Unlock(deadline(t))
	mustSucceed(t, next.Check())
	mustSucceed(t, release(deadline(t), next))
}

// Scenario 57: the remover is killed before its lease is granted, or before it moves the entry. The holder was asked,
// and the next holder is another's after that; a dead holder's name is as it was, and another removal frees it.
func TestKilledRemoverHarmsNothingInARealEtcd(t *testing.T) {
	t.Parallel()
	for _, granted := range []bool{false, true} {
		t.Run(fmt.Sprint("granted ", granted), func(t *testing.T) {
			t.Parallel()
			srv := etcdtest.Start(t)
			link := srv.Link(t)
			alive, dead := lock(t, open(t, srv.Client(t), session.Options{}), "alive"),
				lock(t, open(t, link.Client(), session.Options{TTL: 60 * time.Second}), "dead")
			link.BlackHole()
			waiters := open(t, srv.Client(t), session.Options{})
			nextOfAlive, nextOfDead := holdLater(t, "lock", waiters, "alive"), holdLater(t, "lock", waiters, "dead")
			for lk, name := range map[*locker.Lock]string{alive: "alive", dead: "dead"} {
				srv.WaitForKeys(t, "holdfast/lock/"+name+"/@/", 2)
				ctx, kill := context.WithCancel(deadline(t))
				cli := srv.Client(t)
				cli.Lease = dyingLease{cli.Lease, granted, kill}
				err := administrator(cli).Remove(ctx, holdfast.KindLock, name, lk.Token(), "wedged")
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", name, err)
				}
			}
			endedBy(t, alive, holdfast.CauseRemoved)
			if lk := <-nextOfAlive; lk != nil {
				mustSucceed(t, release(deadline(t), lk))
			}
			q, err := administrator(srv.Client(t)).Show(deadline(t), holdfast.KindLock, "dead")
			if h, _ := q.Holder(); err != nil || h.Token != dead.Token() || !h.Notice.Removed || !h.Notice.Until.IsZero() {
				t.Errorf("the dead holder's entry: %v, %v", h, err)
			}
			mustSucceed(t, administrator(srv.Client(t)).Remove(deadline(t), holdfast.KindLock, "dead", dead.Token(), "wedged"))
			if lk := <-nextOfDead; lk != nil {
				mustSucceed(t, release(deadline(t), lk))
			}
			link.Heal()
			endedBy(t, dead, holdfast.CauseEntryDeleted)
			_, _ = alive.Unlock(deadline(t)), dead.Unlock(deadline(t))
		})
	}
}

// dyingLease kills its process as a lease is granted.
type dyingLease struct {
	clientv3.Lease
	granted bool // the request reaches etcd
	kill    context.CancelFunc
}

func (l dyingLease) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	defer l.kill()
	if !l.granted {
		return nil, context.Canceled
	}
	return l.Lease.Grant(ctx, ttl)
}

// Scenario 68: a kicked leader ends its work and resigns, and leads again behind the one that waited.
func TestKickedLeaderResignsInARealEtcd(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	ctx, stop := context.WithCancel(throughout(t))
	ended := make(chan error, 2)
	lead := func(value string, terms chan<- *election.Term) {
		el := election.New(open(t, srv.Client(t), session.Options{}), "kicked")
		go func() { // joined below
			ended <- el.With(election.Options{Value: value}).Run(ctx, func(ctx context.Context, term *election.Term) error {
				terms <- term
				<-ctx.Done()
				return nil
			})
		}()
	}
	ofA, ofB := make(chan *election.Term, 4), make(chan *election.Term, 4)
	lead("a", ofA)
	first := <-ofA
	lead("b", ofB)
	srv.WaitForKeys(t, "holdfast/election/kicked/@/", 2)
	ops := administrator(srv.Client(t))
	mustSucceed(t, ops.Kick(deadline(t), holdfast.KindElection, "kicked", first.Token(), "deploy"))
	second := <-ofB
	var kick *holdfast.KickError
	if err := first.Check(); !errors.As(err, &kick) || kick.By != "ops" || second.Token() <= first.Token() {
		t.Errorf("the first leader: %v; tokens %v, %v", err, first.Token(), second.Token())
	}
	srv.WaitForKeys(t, "holdfast/election/kicked/@/", 2) // a campaigns again
	mustSucceed(t, ops.Remove(deadline(t), holdfast.KindElection, "kicked", second.Token(), "deploy"))
	if third := <-ofA; third.Token() <= second.Token() {
		t.Errorf("tokens %v, then %v", second.Token(), third.Token())
	}
	stop()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
