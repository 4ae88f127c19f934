package etcdtest

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// startTimeout bounds the start of a member. It takes tens of milliseconds; this is for machines that are very busy.
const startTimeout = time.Minute

// Options says how the members of a Server or a Cluster run. The zero value is right for tests.
type Options struct {
	// Dir holds the data (a Cluster makes one directory in it for each member). It is created if it does not exist and
	// kept by Close; a Server started on the Dir of one that was closed goes on with its data.
	// Default: a new directory under os.TempDir, removed by Close.
	Dir string

	// Fsync makes every commit wait for the disk, as etcd does in production. Set it where time is measured.
	// Default: no fsync, about ten times faster; data survives Stop and Restart, but not a crash of the machine.
	Fsync bool

	// Configure, when not nil, changes the configuration of each member just before it starts (also when it is started
	// again): quotas, authentication, a slower tick. Addresses, the data directory and the member's name must stay.
	Configure func(*embed.Config)
}

// A Server is one etcd member inside this process, with a store of its own or as a part of a [Cluster].
// All its methods may be called by several goroutines at once.
type Server struct {
	access
	name    string
	dir     string
	tempDir string // what Close removes; empty: nothing
	client  *port  // where it listens for clients
	peers   *proxy // where the other members reach it
	cluster string // etcd's initial-cluster: name=url of every member
	opts    Options

	mu     sync.Mutex // protects what follows; held while the member starts or stops
	etcd   *embed.Etcd
	rpc    *rpcServer
	closed bool
}

// Start starts a one-member etcd and returns when it serves. It fails the test if that does not work, and closes the
// Server when the test ends. At most one Options is taken.
func Start(t testing.TB, opts ...Options) *Server {
	t.Helper()
	srv, err := New(oneOf(opts))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	return srv
}

func oneOf(opts []Options) *Options {
	switch len(opts) {
	case 0:
		return nil
	case 1:
		return &opts[0]
	}
	panic("etcdtest: more than one Options")
}

// New is Start for programs and examples that have no [testing.TB]: the caller must Close the Server. Nil options are
// the defaults. After an error nothing is left running.
func New(opts *Options) (*Server, error) {
	c, err := NewCluster(1, opts)
	if err != nil {
		return nil, err
	}
	return c.members[0], nil
}

// Stop ends the member as a crash does: connections break, requests in progress fail, leadership is not handed over.
// Its data and its addresses are kept; connections are refused until Restart. Stop does nothing if the member does not
// run.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
}

func (s *Server) stop() {
	if s.etcd == nil {
		return
	}
	// Each step spares Etcd.Close something that it would take seconds for, or do too politely: to wait for clients to end
	// their streams; to hand leadership over; to wait for connections from peers (see proxy) to become idle, some of which
	// live on until their read times out after 5 s.
	s.rpc.stop()
	s.etcd.Server.HardStop()
	s.peers.retarget("")
	s.etcd.Close()
	s.etcd, s.rpc = nil, nil
}

// Restart starts a stopped member again, with its data and its addresses. It does not wait: the member serves when it
// has found its quorum, and requests made before wait for that. It is an error if the member runs or is closed.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errors.New("etcdtest: restart of a closed server")
	case s.etcd != nil:
		return errors.New("etcdtest: restart of a server that runs")
	}
	return s.start()
}

// Close stops the member and gives back its goroutines, ports and, unless it was given in Options, its directory.
// A Server that is closed stays closed; closing it again does nothing. Close the clients first: theirs is not waited for.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.stop()
	err := errors.Join(s.access.close(), s.client.Close(), s.peers.close())
	if s.tempDir != "" {
		err = errors.Join(err, os.RemoveAll(s.tempDir))
	}
	return err
}

// start is called with mu held, or before anybody else knows s.
func (s *Server) start() error {
	rpc := &rpcServer{}
	etcd, err := embed.StartEtcd(s.config(rpc))
	if err != nil {
		return fmt.Errorf("etcdtest: start %s: %w", s.name, err)
	}
	s.etcd, s.rpc = etcd, rpc
	s.peers.retarget(etcd.Peers[0].Addr().String())
	return nil
}

func (s *Server) config(rpc *rpcServer) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = s.name
	cfg.Dir = filepath.Join(s.dir, s.name)
	cfg.ListenClientUrls = []url.URL{{Scheme: "http", Host: s.client.addr}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	cfg.ListenPeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: s.peers.addr()}}
	cfg.InitialCluster = s.cluster
	cfg.SocketOpts.ReusePort = true // see port

	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.UnsafeNoFsync = !s.opts.Fsync
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.EnableGRPCGateway = false
	cfg.BcryptCost = 4 // the least bcrypt takes: passwords in tests need not be expensive
	cfg.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.WaitForHandlers(true)}
	cfg.ServiceRegister = rpc.register
	if s.opts.Configure != nil {
		s.opts.Configure(cfg)
	}
	return cfg
}

// waitReady waits until the member serves clients.
func (s *Server) waitReady(timeout <-chan time.Time) error {
	select {
	case <-s.etcd.Server.ReadyNotify():
		return nil
	case err := <-s.etcd.Err():
		return fmt.Errorf("etcdtest: %s: %w", s.name, err)
	case <-s.etcd.Server.StopNotify():
		return fmt.Errorf("etcdtest: %s stopped while it started", s.name)
	case <-timeout:
		return fmt.Errorf("etcdtest: %s does not serve after %v", s.name, startTimeout)
	}
}

// raft returns the IDs of the member and of the one it follows, its own if it leads; 0 is none.
func (s *Server) raft() (id, leader types.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.etcd == nil {
		return 0, 0
	}
	return s.etcd.Server.MemberID(), s.etcd.Server.Leader()
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
