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

// startTimeout limits the start of a member, which takes tens of milliseconds, for the sake of very busy machines.
const startTimeout = time.Minute

// Options configure the members of a Server or a Cluster.
type Options struct {
	// Dir is the directory of the data, with a subdirectory for each member, which Close keeps. Default: a new
	// directory in os.TempDir, which Close removes.
	Dir string

	// Fsync makes every commit wait for the disk. Set it to measure time. Default: no fsync, about ten times faster;
	// data survives Stop and Restart, but not a crash of the machine.
	Fsync bool

	// DefaultTicks gives members etcd's own heartbeat (100 ms) and election timeout (1 s), for a stable leader on a
	// busy machine. The smallest TTL of a lease is then 2 s. Default: a tenth of these, and 1 s.
	DefaultTicks bool

	// Configure, if not nil, changes the configuration of each member before each of its starts: quotas,
	// authentication, TLS for clients, a logger. It must not change addresses, the data directory, the name, or the TLS
	// between members.
	Configure func(*embed.Config)

	// Processes runs each member in a process of its own, which can be paused: this program again, with ETCDTEST_MEMBER
	// in its environment. The start takes a few times as long. Linux only; Configure must be nil.
	Processes bool

	// Program is what runs each member instead of this program, for another release of etcd. It has to understand
	// ETCDTEST_MEMBER: tests/compat/versions of holdfast has such programs. It needs Processes. Default: this program.
	Program string
}

// A Server is one etcd member, with its own store or as a member of a [Cluster]. Its methods are safe for
// concurrent use.
type Server struct {
	access
	spec    spec // Name, Cluster and Join change when the member is replaced, with mu held
	opts    Options
	tempDir string // Close removes it, unless it is empty
	client  *port  // where it listens for clients
	peers   *proxy // where other members reach it

	mu       sync.Mutex // protects member, closed, replaced; held while the member starts, stops or is replaced
	member   member     // nil: stopped
	closed   bool
	replaced int // number of replacements
}

// Start starts an etcd of one member, and returns when it serves. It closes the Server when the test ends. It takes at
// most one Options.
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

func oneOf(opts []Options) Options {
	switch len(opts) {
	case 0:
		return Options{}
	case 1:
		return opts[0]
	}
	panic("etcdtest: more than one Options")
}

// New is Start without a testing.TB. The caller must Close the Server.
func New(o Options) (*Server, error) {
	c, err := NewCluster(1, o)
	if err != nil {
		return nil, err
	}
	s := c.members[0]
	s.tempDir = c.tempDir // c is not closed
	return s, nil
}

// Stop ends the member as a crash does, if it runs. Its data and addresses are kept; connections are refused until
// Restart.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
}

func (s *Server) stop() {
	if s.member == nil {
		return
	}
	// First break the connections to other members: etcd waits a second for some of them, which last until a read
	// timeout of 5 s.
	s.peers.retarget("")
	s.member.stop()
	s.member = nil
}

// Restart starts a stopped member again, with its data and addresses. It does not wait until the member serves, which
// needs a quorum. It is an error if the member runs or is closed.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errors.New("etcdtest: restart: the server is closed")
	case s.member != nil:
		return errors.New("etcdtest: restart: the server runs")
	}
	return s.start()
}

// start starts the member. The caller holds mu, unless no other goroutine has s yet.
func (s *Server) start() (err error) {
	switch {
	case !s.opts.Processes && s.opts.Program != "":
		err = errors.New("Options: Program needs Processes")
	case !s.opts.Processes:
		s.member, err = startEmbedded(s.spec, s.opts.Configure)
	case s.opts.Configure != nil:
		err = errors.New("Options: Processes and Configure exclude each other")
	default:
		s.member, err = startProcess(s.opts.Program, s.spec)
	}
	if err != nil {
		return fmt.Errorf("etcdtest: start %s: %w", s.spec.Name, err)
	}
	s.peers.retarget(s.member.peerAddr())
	return nil
}

// Pause stops the process of the member (SIGSTOP): connections stay open, and the kernel accepts new ones and buffers
// requests, but nothing replies. It needs Options.Processes. It is an error if the member does not run. Until Resume
// use the helpers of another member, and not those of the Cluster.
func (s *Server) Pause() error { return s.signal("pause", pauser.pause) }

// Resume continues a paused member (SIGCONT): at first it believes that no time has passed, and carries out the
// requests in its sockets.
func (s *Server) Resume() error { return s.signal("resume", pauser.resume) }

// A pauser is a member that can be paused. The callers of its methods hold Server.mu.
type pauser interface {
	pause() error
	resume() error
}

func (s *Server) signal(what string, do func(pauser) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := errors.New("it does not run in a process of its own")
	if p, ok := s.member.(pauser); ok {
		err = do(p)
	}
	if err != nil {
		return fmt.Errorf("etcdtest: %s %s: %w", what, s.spec.Name, err)
	}
	return nil
}

// Close stops the member, releases its ports, and removes its directory unless that is Options.Dir. It does not close
// clients.
func (s *Server) Close() error { return s.close(true) }

// close is Close; it leaves the address reserved unless release is set.
func (s *Server) close(release bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.stop()
	err := errors.Join(s.access.close(), s.peers.close())
	if release {
		err = errors.Join(err, s.client.Close())
	}
	if s.tempDir != "" {
		err = errors.Join(err, os.RemoveAll(s.tempDir))
	}
	return err
}

// raft returns the IDs of the member and of its leader, which may be itself; 0 is none.
func (s *Server) raft() (id, leader types.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.member == nil {
		return 0, 0
	}
	return s.member.raft()
}
