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

// A member is an etcd that runs, in this process or in one of its own.
type member interface {
	// peerAddr returns where it listens for the other members.
	peerAddr() string
	// waitReady waits until it serves clients.
	waitReady(ctx context.Context) error
	// raft returns its ID and that of the one it follows, its own if it leads; 0 is none.
	raft() (id, leader types.ID)
	// stop ends it as a crash does, and returns when nothing of it is left but its data.
	stop()
}

// A spec is what a member has to know to start.
type spec struct {
	Name    string
	Dir     string
	Client  string // address to listen at for clients; see port
	Caller  string // what it calls itself to the proxies before the other members; see wires
	Peers   string // address at which the other members reach it; see proxy
	Cluster string // etcd's initial-cluster: name=url of every member
	Join    bool   // Cluster exists already
	Fsync   bool
	Slow    bool // DefaultTicks
}

// peerURL is where the other members reach it: the proxy ends the TLS.
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
	// etcd would make an operator wait until all members have been connected for 5 s before one is replaced.
	cfg.StrictReconfigCheck = false
	cfg.SocketOpts.ReusePort = true // see port

	if !s.Slow {
		cfg.TickMs, cfg.ElectionMs = 10, 100
	}
	cfg.UnsafeNoFsync = !s.Fsync
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(lastWords)
	cfg.EnableGRPCGateway = false
	cfg.BcryptCost = 4 // the least bcrypt takes: passwords in tests need not be expensive
	return cfg
}

// lastWords logs only why etcd ends the process.
var lastWords = zap.New(zapcore.NewCore(
	zapcore.NewConsoleEncoder(zap.NewProductionEncoderConfig()), zapcore.Lock(os.Stderr), zapcore.PanicLevel,
))

// An embedded is a member in this process.
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
		return errors.New("stopped while it started")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errNotReady = fmt.Errorf("does not serve after %v", startTimeout)

func (m *embedded) raft() (id, leader types.ID) {
	return m.etcd.Server.MemberID(), m.etcd.Server.Leader()
}

// stop ends first what Etcd.Close alone would end too politely: connections, for whose streams it waits 5.2 s now and then,
// and raft, which would hand leadership over.
func (m *embedded) stop() {
	m.rpc.stop()
	m.etcd.Server.HardStop()
	m.etcd.Close()
}

// rpcServer gets hold of a member's gRPC server, which embed keeps to itself, through the hook for additional services.
type rpcServer struct {
	mu      sync.Mutex // protects what follows
	server  *grpc.Server
	stopped bool
}

func (r *rpcServer) register(server *grpc.Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server = server
	if r.stopped { // the member became ready while it was being stopped
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
