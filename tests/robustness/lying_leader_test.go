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

// Scenario 30: etcd's leader is stopped for longer than an election, goes on,
// and acknowledges renewals that the cluster has never seen; then it is silent
// for good. Nobody who was told so trusts its lease past the end of that, and
// those who hold are told before others hold.
func TestRenewalsAcknowledgedByAnEtcdLeaderThatIsNoneDoNotCount(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{Processes: true})
	var told, trusted durations
	var lies int64
	// On a busy machine a leader that goes on may learn who leads before it
	// answers anybody; then it has to be done again.
	for round := 0; round < rounds(2, 1) || lies == 0 && round < 4; round++ {
		r := newLyingRound(t, cluster, fmt.Sprintf("round-%d-", round))
		r.hold(t, 24)
		r.lie(t)
		r.judge(t, &told, &trusted)
		lies += r.lies.Load()
	}
	m, u := told.sorted(), trusted.sorted()
	if len(m) == 0 || len(u) == 0 {
		t.Fatal("nobody was told")
	}
	t.Logf("%d renewals were acknowledged by the leader of an earlier term", lies)
	t.Logf("%d handles: told before the next began by %v at least, %v at most", len(m), m[0], m[len(m)-1])
	t.Logf("%d handles: trusted until %v before the end of the entry at least, %v at most", len(u), u[0], u[len(u)-1])
	if m[0] <= 0 {
		t.Errorf("a holder was told %v after the next had begun", -m[0])
	}
	if u[0] <= 0 {
		t.Errorf("a holder was to trust its lease until %v after etcd had ended it", -u[0])
	}
	if lies == 0 {
		t.Error("this test has gone blind: no renewal was acknowledged that should not have been")
	}
}

const lyingTTL = 12 * time.Second

// patient has renewals wait in the socket of the leader that is stopped, rather
// than send many that are given up: those that wait are acknowledged when it
// goes on, before it knows better.
var patient = backoff.Policy{Attempt: time.Second}

// A lyingRound is holders whose renewals go to etcd's leader of now.
type lyingRound struct {
	ctx     context.Context // of all that waits for leases to end
	cluster *etcdtest.Cluster
	prefix  string           // of the names
	old     *etcdtest.Server // that leader
	byOld   func() *clientv3.Client
	others  func() *clientv3.Client
	next    *session.Session // of those who wait, by the others
	ends    *ends

	holders    []*lyingHolder
	term, lies atomic.Int64
}

type lyingHolder struct {
	kind, name string
	sess       *session.Session
	held       handle
	told       chan time.Time // by its context
	next       chan successor
	until      time.Time // trusted-until after the last renewal
}

func newLyingRound(t *testing.T, cluster *etcdtest.Cluster, prefix string) *lyingRound {
	t.Helper()
	// Each change of leader gives every lease its full TTL again, and on a busy
	// machine there may be more of them than one.
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	r := &lyingRound{ctx: ctx, cluster: cluster, prefix: prefix}
	old, others := leaderAndOthers(t, cluster)
	r.old = old
	r.byOld = func() *clientv3.Client { return old.Client(t) }
	r.others = func() *clientv3.Client { return clientTo(t, others...) }
	cli := r.others()
	r.next = open(t, cli, session.Options{TTL: 30 * time.Second, Retry: quick})
	r.ends = recordEnds(t, cli)
	return r
}

// successor is the next to hold a name, or nobody where that has failed.
type successor struct {
	handle
	began time.Time
}

// hold makes n holders, locks and terms. Every other goes by the old leader
// alone. The rest have their renewals confirmed by others, as happens to a
// client that goes round all members.
func (r *lyingRound) hold(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		h := &lyingHolder{kind: []string{"lock", "election"}[i/2%2], name: fmt.Sprint(r.prefix, i), told: make(chan time.Time, 1), next: make(chan successor, 1)}
		cli := r.byOld()
		lease := cli.Lease
		if i%2 == 0 {
			cli = r.others()
		}
		cli.Lease = &renewals{Lease: lease, term: &r.term, lies: &r.lies}
		h.sess = open(t, cli, session.Options{TTL: lyingTTL, Retry: patient, CloseTimeout: 100 * time.Millisecond, StayLost: true})
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

// lie stops the old leader, lets it go on for a moment, and stops it again.
func (r *lyingRound) lie(t *testing.T) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(r.old.Pause())
	for _, h := range r.holders {
		go func() { // received in judge
			next, err := kinds[h.kind](r.ctx, r.next, h.name, "next")
			began := time.Now()
			if err != nil {
				t.Error(err)
			}
			h.next <- successor{next, began}
		}()
	}
	// Longer than the 5 s after which the others break their connections to it,
	// so that it takes its time to hear of its successor; too short for the
	// holders to be lost.
	<-time.After(lyingTTL / 2)
	leader, err := r.cluster.Leader(deadline(t))
	must(err)
	read, err := leader.Client(t).Get(deadline(t), "term")
	must(err)
	r.term.Store(int64(read.Header.RaftTerm))
	must(r.old.Resume())
	// Long enough to acknowledge what has waited in its sockets and to be told
	// that it leads no more, too short for another renewal.
	<-time.After(150 * time.Millisecond)
	must(r.old.Pause())
	for _, h := range r.holders {
		h.until = time.Now().Add(h.sess.Remaining())
	}
}

// judge waits for the end of all holders. Told is how long before the next one
// held each heard of its end; trusted, how long before the entry was deleted
// trusted-until was.
func (r *lyingRound) judge(t *testing.T, told, trusted *durations) {
	t.Helper()
	for _, h := range r.holders {
		select {
		case ended := <-r.ends.of(h.held.Key()):
			trusted.add(ended.Sub(h.until))
		case <-r.ctx.Done():
			t.Errorf("%s %s: the entry does not end", h.kind, h.name)
		}
		next := <-h.next
		if next.handle == nil {
			continue
		}
		told.add(next.began.Sub(<-h.told))
		if err := h.held.Check(); !errors.Is(err, holdfast.ErrLost) || next.Token() <= h.held.Token() {
			t.Errorf("%s %s: token %v after %v; Check: %v", h.kind, h.name, next.Token(), h.held.Token(), err)
		}
	}
	if err := r.old.Resume(); err != nil {
		t.Fatal(err)
	}
}

// renewals counts those that are acknowledged at an earlier term than the
// present one, once that is known.
type renewals struct {
	clientv3.Lease
	term, lies *atomic.Int64
}

func (r *renewals) KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	resp, err := r.Lease.KeepAliveOnce(ctx, id)
	if err == nil && int64(resp.RaftTerm) < r.term.Load() {
		r.lies.Add(1)
	}
	return resp, err
}
