package session_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/session"
)

// fakeEtcd is as much of an etcd server as a session talks to: leases that
// expire on time, renewals, keys and keys that go with their lease. The real clientv3
// speaks to it over an in-memory connection, so that the whole of it runs in
// virtual time; but watches stand and say nothing, because clientv3's own would
// stop virtual time. What watches say is tested with etcdfake.
type fakeEtcd struct {
	pb.UnimplementedLeaseServer
	pb.UnimplementedKVServer

	mu       sync.Mutex // protects what follows
	nextID   int64
	expiry   map[int64]time.Time
	keys     map[string]*mvccpb.KeyValue
	revision int64
	ttl      time.Duration
	cluster  uint64
	term     uint64 // of the leader
	oldTerm  uint64 // if not 0, renewals are answered by a member of this term and reach nobody
	requests time.Duration
	replies  time.Duration
	cut      bool // nothing is answered any more
	noRenew  bool // no renewal is answered any more
	noRead   bool // nor is any read
	denyPut  bool // no permission to put
	granted  map[int64]time.Duration
	counts   map[string]int
	refuse   map[string]error // answered at once, nothing done
	mute     map[string]int   // so many are carried out and never answered
}

func newFakeEtcd() *fakeEtcd {
	return &fakeEtcd{
		expiry: make(map[int64]time.Time), keys: make(map[string]*mvccpb.KeyValue), revision: 1,
		cluster: 7, term: 3, nextID: 100, counts: make(map[string]int),
		granted: make(map[int64]time.Duration), refuse: make(map[string]error), mute: make(map[string]int),
	}
}

func (f *fakeEtcd) set(change func(f *fakeEtcd)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fakeEtcd) count(rpc string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[rpc]
}

// expires is when the server lets go of a lease, as it knows now.
func (f *fakeEtcd) expires(id clientv3.LeaseID) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.expiry[int64(id)]
}

// serve runs apply as the server would: after the request has travelled, and
// with an answer that travels back.
func (f *fakeEtcd) serve(ctx context.Context, rpc string, apply func() error) error {
	f.mu.Lock()
	f.counts[rpc]++
	there, back := f.requests, f.replies
	f.mu.Unlock()
	if err := travel(ctx, there); err != nil {
		return err
	}
	f.mu.Lock()
	if f.cut || f.noRenew && rpc == "LeaseKeepAlive" || f.noRead && rpc == "Range" {
		f.mu.Unlock()
		<-ctx.Done()
		return ctx.Err()
	}
	if err := f.refuse[rpc]; err != nil {
		f.mu.Unlock()
		return err
	}
	mute := f.mute[rpc] > 0
	f.mute[rpc]--
	err := apply()
	f.mu.Unlock()
	if mute {
		<-ctx.Done()
		return ctx.Err()
	}
	if terr := travel(ctx, back); terr != nil {
		return terr
	}
	return err
}

func travel(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fakeEtcd) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: f.cluster, RaftTerm: f.term, Revision: f.revision}
}

func (f *fakeEtcd) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (resp *pb.LeaseGrantResponse, err error) {
	err = f.serve(ctx, "LeaseGrant", func() error {
		id := r.ID
		if id == 0 {
			f.nextID++
			id = f.nextID
		}
		ttl := max(time.Duration(r.TTL)*time.Second, f.ttl)
		f.expiry[id], f.granted[id] = time.Now().Add(ttl), ttl
		resp = &pb.LeaseGrantResponse{Header: f.header(), ID: id, TTL: int64(ttl / time.Second)}
		f.ttl = 0
		return nil
	})
	return resp, err
}

func (f *fakeEtcd) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (resp *pb.LeaseRevokeResponse, err error) {
	err = f.serve(ctx, "LeaseRevoke", func() error {
		if _, ok := f.expiry[r.ID]; !ok {
			return rpctypes.ErrGRPCLeaseNotFound
		}
		delete(f.expiry, r.ID)
		resp = &pb.LeaseRevokeResponse{Header: f.header()}
		return nil
	})
	return resp, err
}

func (f *fakeEtcd) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	for {
		r, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		resp := &pb.LeaseKeepAliveResponse{ID: r.ID}
		err = f.serve(stream.Context(), "LeaseKeepAlive", func() error {
			resp.Header = f.header()
			if f.oldTerm != 0 {
				resp.Header.RaftTerm = f.oldTerm // acknowledged, and lost
				resp.TTL = 15
				return nil
			}
			if until, ok := f.expiry[r.ID]; ok && time.Now().Before(until) {
				resp.TTL = int64(f.granted[r.ID] / time.Second)
				f.expiry[r.ID] = time.Now().Add(f.granted[r.ID])
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

// stands reports whether a lease stands; f.mu is held.
func (f *fakeEtcd) stands(lease int64) bool { return time.Now().Before(f.expiry[lease]) }

func (f *fakeEtcd) Range(ctx context.Context, r *pb.RangeRequest) (resp *pb.RangeResponse, err error) {
	err = f.serve(ctx, "Range", func() error {
		resp = &pb.RangeResponse{Header: f.header()}
		if kv := f.keys[string(r.Key)]; kv != nil && f.stands(kv.Lease) {
			resp.Kvs, resp.Count = []*mvccpb.KeyValue{kv}, 1
		}
		return nil
	})
	return resp, err
}

func (f *fakeEtcd) Put(ctx context.Context, r *pb.PutRequest) (resp *pb.PutResponse, err error) {
	err = f.serve(ctx, "Put", func() error {
		if f.denyPut {
			return rpctypes.ErrGRPCPermissionDenied
		}
		if !f.stands(r.Lease) {
			return rpctypes.ErrGRPCLeaseNotFound
		}
		f.revision++
		f.keys[string(r.Key)] = &mvccpb.KeyValue{Key: r.Key, Value: r.Value, Lease: r.Lease, ModRevision: f.revision}
		resp = &pb.PutResponse{Header: f.header()}
		return nil
	})
	return resp, err
}

// silent is a Watcher whose watches stand and never tell of an event. clientv3's
// own waits on a channel of the package, made outside the bubble, so that time
// would not pass in there.
type silent struct{ clientv3.Watcher }

func (silent) Watch(ctx context.Context, _ string, _ ...clientv3.OpOption) clientv3.WatchChan {
	events := make(chan clientv3.WatchResponse, 1)
	events <- clientv3.WatchResponse{Created: true}
	context.AfterFunc(ctx, func() { close(events) })
	return events
}

// dial serves f and returns a real client of it. Both end with the test.
func (f *fakeEtcd) dial(t *testing.T) *clientv3.Client {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	pb.RegisterLeaseServer(server, f)
	pb.RegisterKVServer(server, f)
	served := make(chan struct{})
	go func() { // joined in the cleanup
		defer close(served)
		_ = server.Serve(listener)
	}()
	cli, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"passthrough:///fake"},
		Logger:    zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	cli.Watcher = silent{cli.Watcher}
	t.Cleanup(func() {
		_ = cli.Close()
		server.Stop()
		<-served
	})
	return cli
}

// quiet are options for virtual time: the boot-time clock would be real there.
func quiet(o session.Options) *session.Options {
	if o.Clock == nil {
		o.Clock = session.MonotonicClock()
	}
	o.Logger = slog.New(slog.DiscardHandler)
	return &o
}

// open starts a session of f and closes it with the test.
func (f *fakeEtcd) open(t *testing.T, o session.Options) *session.Session {
	t.Helper()
	sess, err := session.New(t.Context(), f.dial(t), quiet(o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.set(func(f *fakeEtcd) { f.cut = false })
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = sess.Close(ctx)
	})
	return sess
}

// recorder collects events and lets a test wait for the next.
type recorder chan session.Event

func newRecorder() recorder { return make(recorder, 1000) }

func (r recorder) tell(ev session.Event) { r <- ev }

func (r recorder) next(t *testing.T, want holdfast.State) session.Event {
	t.Helper()
	select {
	case ev := <-r:
		if ev.State != want {
			t.Fatalf("event %v -> %v (%v), want %v", ev.Previous, ev.State, ev.Err, want)
		}
		return ev
	case <-time.After(10 * time.Minute):
		t.Fatalf("no event, want %v", want)
	}
	panic("unreachable")
}
