package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
)

// A member is a running etcd member, in this process or in one of its own.
type member interface {
	// peerAddr returns the address where it listens for other members.
	peerAddr() string
	// waitReady waits until it serves clients.
	waitReady(ctx context.Context) error
	// raft returns its ID and that of its leader, which may be itself; 0 is none.
	raft() (id, leader types.ID)
	// stop ends it as a crash does. When it returns, only the data remains.
	stop()
}

// A spec is what a member needs to start.
type spec struct {
	Name    string
	Dir     string
	Client  string // where it listens for clients; see port
	Caller  string // its name towards the proxies of other members; see wires
	Peers   string // where other members reach it; see proxy
	Cluster string // etcd's initial-cluster: NAME=URL of each member
	Join    bool   // the cluster exists already
	Fsync   bool
	Slow    bool // DefaultTicks
}

// peerURL returns the URL where other members reach it. The proxy there terminates TLS.
func (s spec) peerURL() string { return "https://" + s.Peers }

func (s spec) config() *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = s.Name
	cfg.Dir = s.Dir
	cfg.ListenClientUrls = []url.URL{{Scheme: "http", Host: s.Client}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	cfg.ListenPeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "https", Host: s.Peers}}
	cfg.PeerTLSInfo = transport.TLSInfo{ServerName: s.Caller, InsecureSkipVerify: true}
	cfg.InitialCluster = s.Cluster
	if s.Join {
		cfg.ClusterState = embed.ClusterStateFlagExisting
	}
	// With the check, etcd refuses to change members until all have been connected for 5 s.
	cfg.StrictReconfigCheck = false
	cfg.SocketOpts.ReusePort = true // see port

	if !s.Slow {
		cfg.TickMs, cfg.ElectionMs = 10, 100
	}
	cfg.UnsafeNoFsync = !s.Fsync
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(panicLogger)
	cfg.EnableGRPCGateway = false
	cfg.BcryptCost = 4 // the cheapest
	return cfg
}

// panicLogger logs only why etcd ends the process.
var panicLogger = zap.New(zapcore.NewCore(
	zapcore.NewConsoleEncoder(zap.NewProductionEncoderConfig()), zapcore.Lock(os.Stderr), zapcore.PanicLevel,
))

// An embedded member runs in this process.
type embedded struct {
	etcd *embed.Etcd
	rpc  *rpcServer
}

func startEmbedded(s spec, configure func(*embed.Config)) (member, error) {
	rpc := &rpcServer{}
	cfg := s.config()
	cfg.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.WaitForHandlers(true)}
	cfg.ServiceRegister = rpc.register
	if configure != nil {
		configure(cfg)
	}
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, err
	}
	return &embedded{etcd: etcd, rpc: rpc}, nil
}

func (m *embedded) peerAddr() string { return m.etcd.Peers[0].Addr().String() }

func (m *embedded) waitReady(ctx context.Context) error {
	select {
	case <-m.etcd.Server.ReadyNotify():
		return nil
	case err := <-m.etcd.Err():
		return err
	case <-m.etcd.Server.StopNotify():
		return errors.New("it was stopped while it started")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errNotReady = fmt.Errorf("it does not serve after %v", startTimeout)

func (m *embedded) raft() (id, leader types.ID) {
	return m.etcd.Server.MemberID(), m.etcd.Server.Leader()
}

// stop first ends what Etcd.Close would end gracefully: connections, for whose streams it sometimes waits 5.2 s, and
// raft, which would transfer the leadership.
func (m *embedded) stop() {
	m.rpc.stop()
	m.etcd.Server.HardStop()
	m.etcd.Close()
}

// rpcServer captures a member's gRPC server, which embed does not export, through the hook for additional services.
type rpcServer struct {
	mu      sync.Mutex // protects server, stopped
	server  *grpc.Server
	stopped bool
}

func (r *rpcServer) register(server *grpc.Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server = server
	if r.stopped { // it became ready during stop
		server.Stop()
	}
}

// stop breaks all connections, and waits for the handlers to return.
func (r *rpcServer) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	if r.server != nil {
		r.server.Stop()
	}
}
