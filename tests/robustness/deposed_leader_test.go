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
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/raftlog"
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
)

// Scenario 30: etcd's leader is paused for longer than an election of etcd. When it
// resumes, it acknowledges renewals that the cluster has never seen, and is paused
// again. No session trusts its lease beyond the lease's end in the cluster, and
// each holder is told before the next one holds.
//
// The paused leader may also revoke leases when it resumes. Its cluster's log tells
// those apart from the ones that the leader of the time let expire.
func TestRenewalsAckedByDeposedLeaderDoNotCount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// With etcd's own ticks, since members that lose their leader over and over on a
	// busy machine lose the sessions before anything is paused.
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{Processes: true, DefaultTicks: true, Dir: dir})
	var told, trusted durations
	var staleAcks int64
	// On a busy machine the resumed leader may learn of its successor before it
	// acknowledges any renewal. Then the test makes another round.
	all := rounds.Long(20, 2, 1)
	for round := 0; round < all || staleAcks == 0 && round < all+3; round++ {
		r := newDeposedRound(t, cluster, dir, fmt.Sprintf("round-%d-", round))
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
	t.Logf("%d holds: trusted until %v to %v before the lease ended", len(u), u[0], u[len(u)-1])
	if staleAcks == 0 {
		t.Error("the test proves nothing: the deposed leader acknowledged no renewal")
	}
}

const deposedTTL = 12 * time.Second

// A deposedRound is one round: a leader of etcd that is deposed, and holders of which
// half renew through it.
type deposedRound struct {
	ctx     context.Context // bounds what waits for leases to expire
	cluster *etcdtest.Cluster
	dir     string           // of the cluster
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
	lease      clientv3.LeaseID
	cutOff     bool // it reaches the old leader only
	held       hold
	next       chan successor

	ended chan struct{} // closed when told and until are known
	told  time.Time     // when its context ended
	until time.Time     // until when the session trusted its lease
}

// follow records told and until.
func (h *deposedHolder) follow(ctx context.Context) {
	defer close(h.ended)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		now := time.Now()
		if left := h.sess.Remaining(); left > 0 {
			h.until = now.Add(left)
		}
		select {
		case <-ctx.Done():
			h.told = time.Now()
			if h.told.Before(h.until) {
				h.until = h.told
			}
			return
		case <-tick.C:
		}
	}
}

func newDeposedRound(t *testing.T, cluster *etcdtest.Cluster, dir, prefix string) *deposedRound {
	t.Helper()
	// Each change of leader gives every lease its full TTL again, and on a busy
	// machine there may be several.
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	r := &deposedRound{ctx: ctx, cluster: cluster, dir: dir, prefix: prefix}
	old, others := leaderAndOthers(t, cluster)
	r.old = old
	r.toOld = func() *clientv3.Client { return old.Client(t) }
	r.others = func() *clientv3.Client { return clientTo(t, others...) }
	cli := r.others()
	r.next = open(t, cli, session.Options{TTL: 30 * time.Second})
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
			cutOff: i%2 == 1, next: make(chan successor, 1), ended: make(chan struct{})}
		cli := r.toOld()
		inner := cli.Lease
		if !h.cutOff {
			cli = r.others()
		}
		cli.Lease = inner
		if !h.cutOff { // it can try to confirm a stale acknowledgement
			cli.Lease = &ackCounter{Lease: inner, term: &r.term, stale: &r.staleAcks}
		}
		h.sess = open(t, cli, session.Options{TTL: deposedTTL, CloseTimeout: 100 * time.Millisecond,
			StayLost: true})
		h.lease = h.sess.Lease()
		var err error
		if h.held, err = kinds[h.kind](deadline(t), h.sess, h.name, "old"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := h.held.WithContext(r.ctx)
		t.Cleanup(cancel)
		go h.follow(ctx) // joined in measure
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
	// Nothing of its successor may wait in its sockets: when it resumes, it would read that before the renewals.
	r.cluster.Partition(r.old)
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
	// So long that a session which counted the next acknowledgement would trust its lease for a second too long: the
	// successor was elected a second or two after the pause and lets the lease expire a TTL after that, and the request
	// was sent up to three seconds ago. And so short that few holders are lost yet: the others go on renewing.
	<-time.After(deposedTTL * 5 / 8)
	leader, err := r.cluster.Leader(deadline(t))
	must(err)
	read, err := leader.Client(t).Get(deadline(t), "term")
	must(err)
	r.term.Store(int64(read.Header.RaftTerm))
	// It acknowledges the requests in its sockets until it notices, after an election timeout, that it has no quorum.
	must(r.old.Resume())
	acknowledged, tick := time.After(2*time.Second), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for waiting := true; waiting && r.staleAcks.Load() == 0; {
		select {
		case <-tick.C:
		case <-acknowledged:
			waiting = false
		}
	}
	<-time.After(150 * time.Millisecond) // for more of them
	must(r.old.Pause())
	r.cluster.Heal()
}

// measure waits until all leases have ended and all holders have successors. It adds
// to told how long before its successor each holder was told of the loss, and to
// trusted how long before the end of its lease each session ceased to trust it.
func (r *deposedRound) measure(t *testing.T, told, trusted *durations) {
	t.Helper()
	leaseEnded := make([]time.Time, len(r.holders))
	for i, h := range r.holders {
		<-h.ended
		select {
		// Unlike the entry, only etcd deletes the session key.
		case leaseEnded[i] = <-r.deleted.of(fmt.Sprintf("holdfast/session/%x", int64(h.lease))):
		case <-r.ctx.Done():
			t.Fatalf("%s %s: the lease did not end", h.kind, h.name)
		}
	}
	log, err := raftlog.Read(r.dir)
	mustSucceed(t, err)
	for i, h := range r.holders {
		early, why, err := log.Early(h.lease)
		mustSucceed(t, err)
		if early {
			t.Logf("%s %s: lease %x was revoked early: %s", h.kind, h.name, int64(h.lease), why)
		} else {
			trusted.add(leaseEnded[i].Sub(h.until))
			if !h.until.Before(leaseEnded[i]) {
				t.Errorf("%s %s: the session trusted its lease for %v after its end: %s; Check: %v",
					h.kind, h.name, h.until.Sub(leaseEnded[i]), why, h.held.Check())
			}
		}
		next := <-h.next
		if next.hold == nil {
			continue
		}
		if err := h.held.Check(); !errors.Is(err, holdfast.ErrLost) || next.Token() <= h.held.Token() {
			t.Errorf("%s %s: token %v after %v; Check: %v", h.kind, h.name, next.Token(), h.held.Token(), err)
		}
		// A client cannot be told of an early revocation while it reaches no member.
		if early && h.cutOff {
			continue
		}
		told.add(next.began.Sub(h.told))
		if !h.told.Before(next.began) {
			t.Errorf("%s %s: told %v after the next hold began: %s", h.kind, h.name, h.told.Sub(next.began), why)
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
