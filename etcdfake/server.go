package etcdfake

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

const (
	// electionTimeout is etcd's default. A watch that requires a leader is canceled after three of them without one.
	electionTimeout = time.Second

	// requestTimeout is etcd's limit for a request to commit: 5 s and two election timeouts.
	requestTimeout = 5*time.Second + 2*electionTimeout

	memberID = 0xfa4e01 // of the first member; the next ones follow
)

// clusters counts the Servers of this process.
var clusters atomic.Uint64

// Options configure a Server. The zero value of each field is its default.
type Options struct {
	// MinTTL is the smallest TTL of a lease, in whole seconds; requests for less get it. Default: 2 s, as etcd's.
	MinTTL time.Duration

	// Members is how many members the cluster has. Default: 1.
	Members int
}

// A Server is an etcd cluster in memory. Its methods are safe for concurrent use, and none of them blocks. Its History,
// Keys and Expires read the store without an RPC.
type Server struct {
	minTTL  int64
	cluster uint64 // its ID
	members []*Member

	mu sync.Mutex // protects the server, its links and its watches; never held across a blocking call
	store
	leases     map[int64]*lease
	nextLease  int64
	watches    []*watch
	links      []*Link
	term       uint64
	leaderless bool
	deposed    time.Time // until then the previous leader acknowledges renewals, at its term and without effect
	closed     bool
}

// New returns an empty cluster with a cluster ID of its own. Close it. In a test, use
// Test.
func New(o Options) *Server {
	s := &Server{
		minTTL: 2, cluster: 0xfa4e00 + clusters.Add(1),
		store: newStore(), leases: make(map[int64]*lease), nextLease: 0x5eed0000, term: 2,
	}
	if o.MinTTL > 0 {
		s.minTTL = int64(o.MinTTL / time.Second)
	}
	for i := range max(1, o.Members) {
		s.members = append(s.members, &Member{srv: s, number: i, applied: s.rev})
	}
	return s
}

// Client returns a client on a new Link, and closes both when the test ends. Closing the client closes the link, too,
// and returns context.Canceled. Without a test, use Link and Link.Client.
func (s *Server) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	l := s.Link()
	t.Cleanup(l.Close)
	return l.Client()
}

// Close closes all links and stops the timers of all leases.
func (s *Server) Close() {
	s.mu.Lock()
	links := s.links
	s.closed = true
	for _, l := range s.leases {
		l.timer.Stop()
	}
	s.mu.Unlock()
	for _, l := range links {
		l.Close()
	}
}

// header returns the header of a reply at revision rev; 0 is the current one.
func (s *Server) header(rev int64) *pb.ResponseHeader {
	if rev == 0 {
		rev = s.rev
	}
	return &pb.ResponseHeader{ClusterId: s.cluster, MemberId: memberID, Revision: rev, RaftTerm: s.term}
}

func (s *Server) begin(cause Cause) *write {
	return &write{store: &s.store, cause: cause, attach: s.attach}
}

// commit makes the changes of w the current revision.
func (s *Server) commit(w *write) {
	if len(w.changes) == 0 {
		return
	}
	s.rev++
	s.log = append(s.log, w.changes...)
	for _, m := range s.members {
		m.commit(w.changes)
	}
}

// The serve methods carry out requests when they arrive. They run under mu.

func (s *Server) serveRange(r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := validRange(r); err != nil {
		return nil, err
	}
	if err := s.checkRange(r); err != nil {
		return nil, err
	}
	resp := s.read(r, s.rev)
	resp.Header = s.header(resp.Header.Revision)
	return resp, nil
}

func (s *Server) servePut(r *pb.PutRequest) (*pb.PutResponse, error) {
	if err := validPut(r); err != nil {
		return nil, err
	}
	if err := s.checkPut(r); err != nil {
		return nil, err
	}
	w := s.begin(ByRequest)
	resp := w.applyPut(r)
	s.commit(w)
	resp.Header = s.header(resp.Header.Revision)
	return resp, nil
}

func (s *Server) serveDelete(r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	if err := validDelete(r); err != nil {
		return nil, err
	}
	w := s.begin(ByRequest)
	resp := w.applyDelete(r)
	s.commit(w)
	resp.Header = s.header(resp.Header.Revision)
	return resp, nil
}

func (s *Server) serveTxn(r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := validTxn(r, maxTxnOps); err != nil {
		return nil, err
	}
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		if _, _, err := distinct(ops); err != nil {
			return nil, err
		}
	}
	b := s.choose(r)
	if err := s.check(b); err != nil {
		return nil, err
	}
	w := s.begin(ByRequest)
	resp := s.apply(w, b)
	s.commit(w)
	resp.Header = s.header(0)
	return resp, nil
}

func (s *Server) serveCompact(r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	switch {
	case r.Revision <= s.compacted:
		return nil, rpctypes.ErrGRPCCompacted
	case r.Revision > s.rev:
		return nil, rpctypes.ErrGRPCFutureRev
	}
	s.compacted = r.Revision
	return &pb.CompactionResponse{Header: s.header(0)}, nil
}

// History returns every change under prefix since New, in order, including compacted ones.
func (s *Server) History(prefix string) []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	var changes []Change
	for _, c := range s.log {
		if strings.HasPrefix(string(c.Kv.Key), prefix) {
			c.Kv, c.Prev = clone(c.Kv), clone(c.Prev)
			changes = append(changes, c)
		}
	}
	return changes
}

// Keys returns the current keys under prefix, oldest first: under a lock's entries, the first is the holder's.
func (s *Server) Keys(prefix string) []*mvccpb.KeyValue {
	s.mu.Lock()
	defer s.mu.Unlock()
	var kvs []*mvccpb.KeyValue
	for _, key := range s.live {
		if strings.HasPrefix(key, prefix) {
			kvs = append(kvs, clone(s.version(key, s.rev)))
		}
	}
	slices.SortStableFunc(kvs, func(a, b *mvccpb.KeyValue) int {
		return cmp.Compare(a.CreateRevision, b.CreateRevision)
	})
	return kvs
}

// requiresLeader reports whether ctx is from clientv3.WithRequireLeader.
func requiresLeader(ctx context.Context) bool {
	md, _ := metadata.FromOutgoingContext(ctx)
	values := md[rpctypes.MetadataRequireLeaderKey]
	return len(values) > 0 && values[0] == rpctypes.MetadataHasLeader
}
