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

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
)

// A reroutedClient is connected to one member of three. That is paused while requests
// of the client's sessions are in its socket, and the client switches to the other
// members. The requests in the socket are executed when the member resumes.
type reroutedClient struct {
	open   []*session.Session
	client *clientv3.Client
	paused *etcdtest.Server // the member that is paused
	steady *etcdtest.Server // another one
	others []string         // endpoints of the other members
	link   *etcdtest.Link   // to paused
	sent   *sentRequests
	last   chan error // result of a read that was sent to paused after all other requests
	gates  []int64    // of each session, when all requests had been sent
}

func newReroutedClient(t *testing.T, cluster *etcdtest.Cluster, paused *etcdtest.Server, sessions int) *reroutedClient {
	t.Helper()
	c := &reroutedClient{paused: paused, link: paused.Link(t), sent: &sentRequests{puts: make(map[string]bool)},
		last: make(chan error, 1)}
	for _, m := range cluster.Members() {
		if m != paused {
			c.steady = m
			c.others = append(c.others, m.Endpoints()...)
		}
	}
	var err error
	c.client, err = clientv3.New(clientv3.Config{
		Endpoints: c.link.Endpoints(), DialOptions: []grpc.DialOption{grpc.WithStatsHandler(c.sent)}, Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.client.Close() })
	for range sessions {
		c.open = append(c.open, open(t, c.client, session.Options{TTL: 60 * time.Second}))
	}
	return c
}

// sess returns the session of the i-th lock.
func (c *reroutedClient) sess(i int) *session.Session { return c.open[i%len(c.open)] }

// pause pauses the member and calls send to send it Txns that put n entries. It calls giveUp
// when nothing reaches the member any more and no other member is known to the client, and
// returns when the client uses the others.
func (c *reroutedClient) pause(t *testing.T, n int, send, giveUp func()) {
	t.Helper()
	if err := c.paused.Pause(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.paused.Resume() }) // also if the test fails: others use the cluster after it
	entries := c.sent.entries() + n
	send()
	await(t, "all Txns are sent", func() bool { return c.sent.entries() >= entries })
	for _, sess := range c.open {
		c.gates = append(c.gates, lease.Open(sess).Lease().Gate())
	}
	go func() { // ends by its deadline; received in resume
		_, err := c.client.Get(deadline(t), lastKey)
		c.last <- err
	}()
	await(t, "the read is sent", func() bool { return c.sent.last.Load() })
	// When another member answers a repetition, or the caller gives up, the client tells
	// the server to cancel the first copy. That message must not reach the socket.
	c.link.BlackHole()
	giveUp()
	c.client.SetEndpoints(c.others...)
	await(t, "the client uses the other members", func() bool {
		ctx, cancel := context.WithTimeout(deadline(t), 200*time.Millisecond)
		defer cancel()
		_, err := c.client.Get(ctx, "others")
		return err == nil
	})
}

// awaitNewGates returns when each session has put its key again through another
// member. From then on the comparisons of all Txns sent before fail.
func (c *reroutedClient) awaitNewGates(t *testing.T) {
	t.Helper()
	for i, sess := range c.open {
		await(t, "the session key is put again", func() bool { return lease.Open(sess).Lease().Gate() > c.gates[i] })
	}
}

// revision returns the latest revision of the store, read from a healthy member.
func (c *reroutedClient) revision(t *testing.T) int64 {
	t.Helper()
	resp, err := c.steady.Client(t).Get(deadline(t), "revision")
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Revision
}

// resume resumes the member and returns when it has executed the requests in its
// socket. late is the number of their writes according to the length of etcd's log,
// to which a change of leader adds one.
func (c *reroutedClient) resume(t *testing.T) (late int) {
	t.Helper()
	before, _ := logLength(t, c.steady)
	if err := c.paused.Resume(); err != nil {
		t.Fatal(err)
	}
	_, first := logLength(t, c.paused)
	c.link.Heal()
	// The read was sent after the Txns on the same connection. Once it is answered,
	// the member has received the Txns, and proposes later writes after them.
	if err := <-c.last; err != nil {
		t.Error(err)
	}
	after, second := logLength(t, c.paused)
	return after - before - first - second
}

// logLength writes a key through a member and returns the length of the raft log
// after that. Each write adds one to it, even a Txn whose comparisons fail. A member
// that has just been deposed may lose the write; logLength repeats it then.
func logLength(t *testing.T, m *etcdtest.Server) (length, tries int) {
	t.Helper()
	cli := m.Client(t)
	await(t, "the member accepts a write", func() bool {
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

// lastKey is what the last request to the paused member reads.
const lastKey = "last"

// sentRequests records what a client has written to its connections.
type sentRequests struct {
	last atomic.Bool // the read of lastKey

	mu   sync.Mutex // protects puts
	puts map[string]bool
}

// entries returns how many different entries the sent Txns put.
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
			if string(r.Key) == lastKey {
				s.last.Store(true)
			}
		}
	}
}

// txn records the entries that a Txn puts, also within nested Txns.
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
