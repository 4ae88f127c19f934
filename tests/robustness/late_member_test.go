//go:build linux

package robustness

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
)

// A detour is a client that talks to one member of three until that is stopped,
// with the requests of the client's sessions in its socket, and from then on to
// the others. What was in the socket arrives when the member goes on.
type detour struct {
	open   []*session.Session
	client *clientv3.Client
	slow   *etcdtest.Server // the member that is stopped
	steady *etcdtest.Server // another one
	others []string
	link   *etcdtest.Link // to slow
	sent   *sentRequests
	behind chan error // of a read that was sent to slow behind all else
	gates  []int64    // of each session, when all requests had been sent
}

func newDetour(t *testing.T, cluster *etcdtest.Cluster, slow *etcdtest.Server, sessions int) *detour {
	t.Helper()
	d := &detour{slow: slow, link: slow.Link(t), sent: &sentRequests{puts: make(map[string]bool)}, behind: make(chan error, 1)}
	for _, m := range cluster.Members() {
		if m != slow {
			d.steady = m
			d.others = append(d.others, m.Endpoints()...)
		}
	}
	var err error
	d.client, err = clientv3.New(clientv3.Config{
		Endpoints: d.link.Endpoints(), DialOptions: []grpc.DialOption{grpc.WithStatsHandler(d.sent)}, Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.client.Close() })
	for range sessions {
		d.open = append(d.open, open(t, d.client, session.Options{TTL: 60 * time.Second, Retry: backoff.Policy{Attempt: time.Second}}))
	}
	return d
}

// sess is the session for the i-th lock.
func (d *detour) sess(i int) *session.Session { return d.open[i%len(d.open)] }

// stop stops the member, has Txns sent to it that put n entries, and returns when
// the client goes by the others.
func (d *detour) stop(t *testing.T, n int, send func()) {
	t.Helper()
	if err := d.slow.Pause(); err != nil {
		t.Fatal(err)
	}
	entries, reads := d.sent.entries()+n, d.sent.reads.Load()+1
	send()
	await(t, "all entries are on the way", func() bool { return d.sent.entries() == entries })
	for _, sess := range d.open {
		d.gates = append(d.gates, lease.Open(sess.Ref()).Lease().Gate())
	}
	go func() { // ends with its deadline; received in goOn
		_, err := d.client.Get(deadline(t), "behind")
		d.behind <- err
	}()
	await(t, "the read is on the way", func() bool { return d.sent.reads.Load() == reads })
	// When another member answers a repetition, or the caller gives up, the client tells
	// the server to cancel the first copy. That message must not reach the socket.
	d.link.BlackHole()
	d.client.SetEndpoints(d.others...)
	await(t, "the client goes by the others", func() bool {
		ctx, cancel := context.WithTimeout(deadline(t), 200*time.Millisecond)
		defer cancel()
		_, err := d.client.Get(ctx, "others")
		return err == nil
	})
}

// shutOut returns when each session has put its key again, by way of another
// member: no request that was sent before can be carried out any more.
func (d *detour) shutOut(t *testing.T) {
	t.Helper()
	for i, sess := range d.open {
		await(t, "the session key is put again", func() bool { return lease.Open(sess.Ref()).Lease().Gate() > d.gates[i] })
	}
}

// revision is the latest revision of the store, read from a healthy member.
func (d *detour) revision(t *testing.T) int64 {
	t.Helper()
	resp, err := d.steady.Client(t).Get(deadline(t), "revision")
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Revision
}

// goOn lets the member go on, and returns when it has carried out what it found
// in its socket: how many writes that were, by the length of etcd's log, where a
// change of leader would be an entry too.
func (d *detour) goOn(t *testing.T) (late int) {
	t.Helper()
	before, _ := logged(t, d.steady)
	if err := d.slow.Resume(); err != nil {
		t.Fatal(err)
	}
	_, first := logged(t, d.slow)
	d.link.Heal()
	// The read that was sent behind the Txns, on their connection, is answered:
	// so they have been taken in. What the member writes for anybody after that
	// goes behind them.
	if err := <-d.behind; err != nil {
		t.Error(err)
	}
	after, second := logged(t, d.slow)
	return after - before - first - second
}

// logged writes by way of a member and returns how long the cluster's log is
// then: each write is an entry of it, a Txn also if its comparisons fail. It
// tries again where the member, which may have led, loses the write.
func logged(t *testing.T, m *etcdtest.Server) (length, tries int) {
	t.Helper()
	cli := m.Client(t)
	await(t, "a member writes", func() bool {
		ctx, cancel := context.WithTimeout(deadline(t), time.Second)
		defer cancel()
		tries++
		_, err := cli.Put(ctx, "mark", "")
		return err == nil
	})
	st, err := cli.Status(deadline(t), m.Endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	return int(st.RaftAppliedIndex), tries
}

// sentRequests counts what a client gave to a connection.
type sentRequests struct {
	reads atomic.Int64

	mu   sync.Mutex // protects puts
	puts map[string]bool
}

// entries is how many were to be put by what was sent.
func (s *sentRequests) entries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.puts)
}

func (s *sentRequests) HandleRPC(_ context.Context, what stats.RPCStats) {
	if out, ok := what.(*stats.OutPayload); ok {
		switch r := out.Payload.(type) {
		case *pb.TxnRequest:
			s.txn(r)
		case *pb.RangeRequest:
			s.reads.Add(1)
		}
	}
}

// txn notes the entries that a Txn puts, or those that it is made of.
func (s *sentRequests) txn(r *pb.TxnRequest) {
	for _, op := range r.Success {
		if inner := op.GetRequestTxn(); inner != nil {
			s.txn(inner)
		} else if key := string(op.GetRequestPut().GetKey()); strings.Contains(key, "/@/") {
			s.mu.Lock()
			s.puts[key] = true
			s.mu.Unlock()
		}
	}
}

func (*sentRequests) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*sentRequests) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*sentRequests) HandleConn(context.Context, stats.ConnStats)                       {}
