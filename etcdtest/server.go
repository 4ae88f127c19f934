package etcdtest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/embed"
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

	// DefaultTicks has members take etcd's own time for heartbeats (100 ms) and elections (1 s), for tests that need a
	// leader to stay leader on a busy machine. The least TTL of a lease is then 2 s.
	// Default: a tenth of that.
	DefaultTicks bool

	// Configure, when not nil, changes the configuration of each member just before it starts (also when it is started
	// again): quotas, authentication, a slower tick, a logger. Addresses, the data directory, the member's name and the
	// TLS between members must stay.
	Configure func(*embed.Config)

	// Processes runs each member in a process of its own, which Pause can stop: the executable of the program itself,
	// started again, with ETCDTEST_MEMBER in its environment, by which this package takes it over before main or any test
	// begins. It takes a few times as long to start, works on Linux only, and Configure must be nil.
	// Default: members are goroutines of this process.
	Processes bool
}

// A Server is one etcd member, with a store of its own or as a part of a [Cluster].
// All its methods may be called by several goroutines at once.
type Server struct {
	access
	spec    spec // its Name, Cluster and Join change when the member is replaced, with mu held
	opts    Options
	tempDir string // what Close removes; empty: nothing
	client  *port  // where it listens for clients
	peers   *proxy // where the other members reach it

	mu       sync.Mutex // protects what follows; held while the member starts, stops or is replaced
	member   member     // nil: stopped
	closed   bool
	replaced int // how often
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
	if s.member == nil {
		return
	}
	// First break the connections to the other members. etcd would wait a second for some that live on until their read
	// times out after 5 s.
	s.peers.retarget("")
	s.member.stop()
	s.member = nil
}

// Restart starts a stopped member again, with its data and its addresses. It does not wait: the member serves when it
// has found its quorum, and requests made before wait for that. It is an error if the member runs or is closed.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errors.New("etcdtest: restart of a closed server")
	case s.member != nil:
		return errors.New("etcdtest: restart of a server that runs")
	}
	return s.start()
}

// start is called with mu held, or before anybody else knows s.
func (s *Server) start() (err error) {
	switch {
	case !s.opts.Processes:
		s.member, err = startEmbedded(s.spec, s.opts.Configure)
	case s.opts.Configure != nil:
		err = errors.New("options have both Processes and Configure")
	default:
		s.member, err = startProcess(s.spec)
	}
	if err != nil {
		return fmt.Errorf("etcdtest: start %s: %w", s.spec.Name, err)
	}
	s.peers.retarget(s.member.peerAddr())
	return nil
}

// Pause stops the process of the member without ending it: connections stay open, the kernel goes on accepting new ones
// and taking in requests, but nothing answers, and the member does not notice that time passes. It needs
// [Options].Processes. It is an error if the member does not run.
func (s *Server) Pause() error { return s.signal("pause", pauser.pause) }

// Resume lets a paused member go on: it first believes that no time has passed, and carries out what it finds in its
// sockets.
func (s *Server) Resume() error { return s.signal("resume", pauser.resume) }

// A pauser is a member that can be paused. Its methods are called with the mutex of its Server held.
type pauser interface {
	pause() error
	resume() error
}

func (s *Server) signal(what string, do func(pauser) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := errors.New("not a process of its own that runs")
	if p, ok := s.member.(pauser); ok {
		err = do(p)
	}
	if err != nil {
		return fmt.Errorf("etcdtest: %s %s: %w", what, s.spec.Name, err)
	}
	return nil
}

// Close stops the member and gives back its goroutines, ports and, unless it was given in Options, its directory.
// A Server that is closed stays closed; closing it again does nothing. It does not close clients.
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

// raft returns the IDs of the member and of the one it follows, its own if it leads; 0 is none.
func (s *Server) raft() (id, leader types.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.member == nil {
		return 0, 0
	}
	return s.member.raft()
}
