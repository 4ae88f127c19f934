package queue

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// oneWay is how long a request or an answer travels. It is not nothing: what
	// takes no time happens in an order that no event can be placed into.
	oneWay = 5 * time.Millisecond

	// lockDelay is the default of session.Options.LockDelay.
	lockDelay = time.Second

	// prompt is more than any few round trips, and less than any delay.
	prompt = lockDelay / 4
)

// inBubble runs a test in virtual time, against an etcd in memory.
func inBubble(t *testing.T, f func(t *testing.T, srv *etcdfake.Server)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		srv := etcdfake.New(nil)
		t.Cleanup(srv.Close) // after the sessions
		f(t, srv)
	})
}

// process is one process: its connection and its session.
type process struct {
	link *etcdfake.Link
	kv   *refusingKV
	sess *session.Session

	mu   sync.Mutex // protects sent
	sent map[string]int
}

func start(t *testing.T, srv *etcdfake.Server, change ...func(*session.Options)) *process {
	t.Helper()
	p := &process{link: srv.Link()}
	cli := p.link.Client()
	p.kv = &refusingKV{KV: cli.KV}
	cli.KV = p.kv
	p.link.Delay(oneWay)
	o := session.Options{Clock: session.MonotonicClock(), Logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&o)
	}
	sess, err := session.New(t.Context(), cli, &o)
	if err != nil {
		t.Fatal(err)
	}
	p.sess = sess
	t.Cleanup(func() {
		p.kv.refuse(nil)
		p.heal()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := sess.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return p
}

func (p *process) heal() {
	p.link.Heal()
	p.link.Delay(oneWay)
}

func (p *process) queue(name string) *Queue { return New(lease.Open(p.sess.Ref()), "lock", name) }

func (p *process) sessionKey() string { return lease.Open(p.sess.Ref()).SessionKey(p.sess.Lease()) }

// kindOf tells the requests of this package apart.
func kindOf(c etcdfake.Call) string {
	switch r := c.Request.(type) {
	case *pb.TxnRequest:
		puts, deletes, notes := contents(r.Success)
		switch {
		case notes:
			return "note"
		case puts && deletes:
			return "hand-off"
		case puts:
			return "enqueue"
		case deletes:
			return "remove"
		case len(r.Compare) == 0:
			return "read"
		}
		return "audit"
	case *pb.PutRequest:
		return "gate"
	case *pb.RangeRequest:
		if r.RangeEnd != nil {
			return "read"
		}
		return "session"
	case clientv3.Op:
		if strings.HasPrefix(string(r.KeyBytes()), "holdfast/session/") {
			return "session watch"
		}
		return "watch"
	case nil:
		return "event"
	}
	return c.Method
}

func contents(ops []*pb.RequestOp) (puts, deletes, notes bool) {
	for _, op := range ops {
		puts = puts || op.GetRequestPut() != nil
		deletes = deletes || op.GetRequestDeleteRange() != nil
		notes = notes || op.GetRequestPut().GetIgnoreLease()
		if inner := op.GetRequestTxn(); inner != nil {
			p, d, n := contents(inner.Success)
			puts, deletes, notes = puts || p, deletes || d, notes || n
		}
	}
	return puts, deletes, notes
}

// plan has fate decide what becomes of the n-th request of its kind from now on,
// counted from 1, and counts them; a nil fate: they arrive.
func (p *process) plan(fate func(kind string, n int) etcdfake.Fate) {
	p.mu.Lock()
	p.sent = make(map[string]int)
	p.mu.Unlock()
	p.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
		p.mu.Lock()
		defer p.mu.Unlock()
		kind := kindOf(c)
		p.sent[kind]++
		if fate == nil {
			return etcdfake.Fate{}
		}
		return fate(kind, p.sent[kind])
	})
}

// planOne decides the fate of the first request of a kind; all others arrive.
func (p *process) planOne(kind string, f etcdfake.Fate) {
	p.plan(func(k string, n int) etcdfake.Fate {
		if k == kind && n == 1 {
			return f
		}
		return etcdfake.Fate{}
	})
}

// planAll decides the fate of all requests of a kind; others arrive.
func (p *process) planAll(kind string, f etcdfake.Fate) {
	p.plan(func(k string, _ int) etcdfake.Fate {
		if k == kind {
			return f
		}
		return etcdfake.Fate{}
	})
}

// unheard has happen what the process's watches do not tell, before they fail.
func (p *process) unheard(srv *etcdfake.Server, happen func()) {
	p.plan(func(kind string, _ int) etcdfake.Fate {
		if kind == "event" {
			return etcdfake.Fate{Reply: 24 * time.Hour}
		}
		return etcdfake.Fate{}
	})
	happen()
	srv.CancelWatches(rpctypes.ErrNoLeader)
	p.plan(nil)
}

// counts are the requests since plan.
func (p *process) counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.sent)
}

func request() Request { return Request{} }

func mustAcquire(t *testing.T, q *Queue) *Hold {
	t.Helper()
	h, err := q.Acquire(within(t, time.Minute), request())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// result is what Acquire returned, and when.
type result struct {
	h   *Hold
	err error
	at  time.Time
}

// acquireLater acquires on a goroutine that ends with ctx.
func acquireLater(ctx context.Context, q *Queue) <-chan result {
	done := make(chan result, 1)
	go func() {
		h, err := q.Acquire(ctx, request())
		done <- result{h, err, time.Now()}
	}()
	return done
}

// granted receives a hold whose entry has to be the first.
func granted(t *testing.T, srv *etcdfake.Server, done <-chan result) result {
	t.Helper()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	kvs := srv.Keys(r.h.Queue().entries)
	if len(kvs) == 0 || string(kvs[0].Key) != r.h.Key() || kvs[0].CreateRevision != int64(r.h.Token().Revision()) {
		t.Errorf("%s is held, and in etcd stand %v", r.h.Key(), kvs)
	}
	return r
}

func mustRelease(t *testing.T, h *Hold) {
	t.Helper()
	if err := h.Release(within(t, time.Minute)); err != nil {
		t.Errorf("Release: %v", err)
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// queued waits until n entries stand below prefix, and whoever put the last has
// its answer and its watch.
func queued(t *testing.T, srv *etcdfake.Server, prefix string, n int) {
	t.Helper()
	for range 1000 {
		if len(srv.Keys(prefix)) == n {
			time.Sleep(20 * oneWay)
			return
		}
		time.Sleep(oneWay)
	}
	t.Fatalf("entries: %v, want %d", srv.Keys(prefix), n)
}

// nothingStands: no entry of a lock does.
func nothingStands(t *testing.T, srv *etcdfake.Server) {
	t.Helper()
	if kvs := srv.Keys("holdfast/lock/"); len(kvs) != 0 {
		t.Errorf("left behind: %v", kvs)
	}
}

// putsEver is how many entries were ever put below prefix.
func putsEver(srv *etcdfake.Server, prefix string) (n int) {
	for _, c := range srv.History(prefix) {
		if !c.Deleted && c.Kv.CreateRevision == c.Kv.ModRevision {
			n++
		}
	}
	return n
}

// used is how many keys a queue's session has in use.
func (q *Queue) used() int {
	q.shared.keys.mu.Lock()
	defer q.shared.keys.mu.Unlock()
	return len(q.shared.keys.inUse)
}

// gateMoves is how often a session has put its session key again.
func (p *process) gateMoves(srv *etcdfake.Server) int {
	return len(srv.History(p.sessionKey())) - 1
}

// peer is another client's entry, put by hand, with a session key as ours have.
type peer struct {
	srv   *etcdfake.Server
	lease clientv3.LeaseID
	key   string
}

// join puts the entry of a peer into a queue.
func join(t *testing.T, srv *etcdfake.Server, prefix string) *peer {
	t.Helper()
	p := joinAs(t, srv, prefix, func(lease clientv3.LeaseID) string { return fmt.Sprintf("%x-AAAAAAAAAAAAAAAA", int64(lease)) })
	if _, err := srv.Client().Put(t.Context(), fmt.Sprintf("holdfast/session/%x", int64(p.lease)), "", clientv3.WithLease(p.lease)); err != nil {
		t.Fatal(err)
	}
	return p
}

// joinAs puts an entry without a session key, under a name of one's own.
func joinAs(t *testing.T, srv *etcdfake.Server, prefix string, name func(clientv3.LeaseID) string) *peer {
	t.Helper()
	grant, err := srv.Client().Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{srv: srv, lease: grant.ID, key: prefix + name(grant.ID)}
	if _, err := srv.Client().Put(t.Context(), p.key, "", clientv3.WithLease(p.lease)); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *peer) release() { p.srv.Delete(p.key) }

func (p *peer) revoke() { p.srv.Revoke(p.lease) }

// deletedAt is when the latest entry at a key was deleted.
func deletedAt(t *testing.T, srv *etcdfake.Server, key string) time.Time {
	t.Helper()
	history := srv.History(key)
	last := history[len(history)-1]
	if !last.Deleted {
		t.Fatalf("%s stands", key)
	}
	return last.At
}

func keysOf(kvs []*mvccpb.KeyValue) (keys []string) {
	for _, kv := range kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}
