//go:build linux

package robustness

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// Scenario 30: etcd's leader is paused for longer than an election of etcd. When it
// resumes, it acknowledges renewals that the cluster has never seen, and is paused
// again. No session trusts its lease beyond the lease's end in the cluster, and
// each holder is told before the next one holds.
func TestRenewalsAckedByDeposedLeaderDoNotCount(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{Processes: true})
	var told, trusted durations
	var staleAcks int64
	// On a busy machine the resumed leader may learn of its successor before it acknowledges any renewal. Then the test
	// runs another round.
	for round := 0; round < rounds(2, 1) || staleAcks == 0 && round < 4; round++ {
		r := newDeposedRound(t, cluster, fmt.Sprintf("round-%d-", round))
		r.acquire(t, 24)
		r.depose(t)
		r.measure(t, &told, &trusted)
		staleAcks += r.staleAcks.Load()
	}
	m, u := told.sorted(), trusted.sorted()
	if len(m) == 0 || len(u) == 0 {
		t.Fatal("no holder was told of its loss")
	}
	t.Logf("a deposed leader acknowledged %d renewals", staleAcks)
	t.Logf("%d holds: told %v to %v before the next hold began", len(m), m[0], m[len(m)-1])
	t.Logf("%d holds: trusted until %v to %v before the entry was deleted", len(u), u[0], u[len(u)-1])
	if m[0] <= 0 {
		t.Errorf("a holder was told %v after the next hold began", -m[0])
	}
	if u[0] <= 0 {
		t.Errorf("a session trusted its lease until %v after etcd had deleted the entry", -u[0])
	}
	if staleAcks == 0 {
		t.Error("the test proves nothing: the deposed leader acknowledged no renewal")
	}
}

const deposedTTL = 12 * time.Second

// slowRetry has long attempts, so that renewals wait in the socket of the paused
// leader instead of being canceled. It acknowledges them when it resumes, before it
// learns of its successor.
var slowRetry = backoff.Policy{Attempt: time.Second}

// A deposedRound is one round: a leader of etcd that is deposed, and holders of which
// half renew through it.
type deposedRound struct {
	ctx     context.Context // bounds what waits for leases to expire
	cluster *etcdtest.Cluster
	prefix  string           // of the names of locks and elections
	old     *etcdtest.Server // the leader
	toOld   func() *clientv3.Client
	others  func() *clientv3.Client // to the other members
	next    *session.Session        // of the waiters, connected to the other members
	deleted *deletions

	holders   []*deposedHolder
	term      atomic.Int64 // of the successor; 0: not yet known
	staleAcks atomic.Int64
}

type deposedHolder struct {
	kind, name string
	sess       *session.Session
	held       hold
	told       chan time.Time // when its context ended
	next       chan successor
	until      time.Time // until when the session trusts its lease after the last renewal
}

func newDeposedRound(t *testing.T, cluster *etcdtest.Cluster, prefix string) *deposedRound {
	t.Helper()
	// Each change of leader gives every lease its full TTL again, and on a busy
	// machine there may be several.
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	r := &deposedRound{ctx: ctx, cluster: cluster, prefix: prefix}
	old, others := leaderAndOthers(t, cluster)
	r.old = old
	r.toOld = func() *clientv3.Client { return old.Client(t) }
	r.others = func() *clientv3.Client { return clientTo(t, others...) }
	cli := r.others()
	r.next = open(t, cli, session.Options{TTL: 30 * time.Second, Retry: quick})
	r.deleted = recordDeletions(t, cli)
	return r
}

// successor is the next hold of a name; hold is nil if the acquisition failed.
type successor struct {
	hold
	began time.Time
}

// acquire opens n sessions, half of which hold a lock and half a term. Every other
// session is connected to the old leader only. The others are connected to the
// other members, like a client that has switched members.
func (r *deposedRound) acquire(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		h := &deposedHolder{kind: []string{"lock", "election"}[i/2%2], name: fmt.Sprint(r.prefix, i),
			told: make(chan time.Time, 1), next: make(chan successor, 1)}
		cli := r.toOld()
		inner := cli.Lease
		if i%2 == 0 {
			cli = r.others()
		}
		cli.Lease = &ackCounter{Lease: inner, term: &r.term, stale: &r.staleAcks}
		h.sess = open(t, cli, session.Options{TTL: deposedTTL, Retry: slowRetry, CloseTimeout: 100 * time.Millisecond,
			StayLost: true})
		var err error
		if h.held, err = kinds[h.kind](deadline(t), h.sess, h.name, "old"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := h.held.WithContext(r.ctx)
		t.Cleanup(cancel)
		context.AfterFunc(ctx, func() { h.told <- time.Now() })
		r.holders = append(r.holders, h)
	}
}

// depose pauses the leader until it has a successor, resumes it for a moment, and
// pauses it again.
func (r *deposedRound) depose(t *testing.T) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(r.old.Pause())
	for _, h := range r.holders {
		go func() { // received in measure
			next, err := kinds[h.kind](r.ctx, r.next, h.name, "next")
			began := time.Now()
			if err != nil {
				t.Error(err)
			}
			h.next <- successor{next, began}
		}()
	}
	// More than the 5 s after which the other members close their connections to
	// the old leader, so that it learns of its successor late. Less than the time
	// after which the holders are lost.
	<-time.After(deposedTTL / 2)
	leader, err := r.cluster.Leader(deadline(t))
	must(err)
	read, err := leader.Client(t).Get(deadline(t), "term")
	must(err)
	r.term.Store(int64(read.Header.RaftTerm))
	must(r.old.Resume())
	// Long enough for the old leader to acknowledge the requests in its sockets and
	// to learn that it is deposed, too short for another renewal.
	<-time.After(150 * time.Millisecond)
	must(r.old.Pause())
	for _, h := range r.holders {
		h.until = time.Now().Add(h.sess.Remaining())
	}
}

// measure waits until all holders have successors. It adds two durations for each holder: to told, from the report of
// its loss to its successor; to trusted, from the end of the session's trust to the deletion of its entry.
func (r *deposedRound) measure(t *testing.T, told, trusted *durations) {
	t.Helper()
	for _, h := range r.holders {
		var deleted time.Time
		select {
		case deleted = <-r.deleted.of(h.held.Key()):
		case <-r.ctx.Done():
			t.Errorf("%s %s: the entry was not deleted", h.kind, h.name)
			continue
		}
		toldAt := <-h.told
		// The resumed leader may revoke a lease that its successor has renewed. Then the
		// lock delay protects the holder, and told is what counts.
		var lost *holdfast.LostError
		if errors.As(h.held.Check(), &lost) && lost.Cause == holdfast.CauseExpired {
			trusted.add(deleted.Sub(h.until))
		}
		next := <-h.next
		if next.hold == nil {
			continue
		}
		told.add(next.began.Sub(toldAt))
		if err := h.held.Check(); !errors.Is(err, holdfast.ErrLost) || next.Token() <= h.held.Token() {
			t.Errorf("%s %s: token %v after %v; Check: %v", h.kind, h.name, next.Token(), h.held.Token(), err)
		}
	}
	if err := r.old.Resume(); err != nil {
		t.Fatal(err)
	}
}

// ackCounter counts renewals that are acknowledged at a raft term before term.
type ackCounter struct {
	clientv3.Lease
	term, stale *atomic.Int64
}

func (c *ackCounter) KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	resp, err := c.Lease.KeepAliveOnce(ctx, id)
	if err == nil && int64(resp.RaftTerm) < c.term.Load() {
		c.stale.Add(1)
	}
	return resp, err
}
