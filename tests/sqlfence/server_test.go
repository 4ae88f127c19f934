package sqlfence_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// server is a database server that the tests start in a temporary directory, and reach only
// through a socket there.
type server struct {
	name     string
	packages string                          // Debian packages with its programs
	user     string                          // to run as if the tests run as root, which servers refuse
	find     func() (paths []string, _ bool) // the programs it needs
	install  func(s *server, paths []string) error
	command  func(s *server, paths []string) *exec.Cmd
	ready    string // what it logs once it serves

	// quickly is the signal that stops it without a shutdown. PostgreSQL stops its
	// children on SIGQUIT.
	quickly syscall.Signal

	together []*server // started with it

	begin   sync.Once
	begun   atomic.Bool
	done    chan struct{} // closed when the following fields are set
	missing string        // packages to install; "" if none
	err     error
	dir     string
	uid     int // -1: that of the tests
	gid     int
	stop    func()
}

var (
	postgres = &server{
		name: "PostgreSQL", packages: "postgresql", user: "postgres", done: make(chan struct{}),
		find: findPostgres, install: installPostgres, command: runPostgres,
		ready: "database system is ready to accept connections", quickly: syscall.SIGQUIT,
	}
	mariadb = &server{
		name: "MariaDB", packages: "mariadb-server", user: "mysql", done: make(chan struct{}),
		find: findMariaDB, install: installMariaDB, command: runMariaDBWithLog,
		ready: "ready for connections", quickly: syscall.SIGKILL,
	}
)

func init() {
	// Nearly every test needs both, so they start at the same time.
	postgres.together, mariadb.together = []*server{mariadb}, []*server{postgres}
}

// startOnce starts the server in the background, once.
func (s *server) startOnce() {
	s.begin.Do(func() {
		s.begun.Store(true)
		go func() { // joined by stopServers
			defer close(s.done)
			s.err = s.start()
		}()
	})
}

// stopServers stops the servers that tests share.
func stopServers() {
	for _, s := range []*server{galera[1], galera[0], postgres, mariadb} {
		s.end()
	}
}

// end stops the server, if it was started, and removes its directory.
func (s *server) end() {
	if !s.begun.Load() {
		return
	}
	<-s.done
	if s.stop != nil {
		s.stop()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// require waits until the server is ready, and skips the test if it is not installed.
func (s *server) require(t testing.TB) {
	t.Helper()
	s.startOnce()
	for _, other := range s.together {
		other.startOnce()
	}
	<-s.done
	if s.missing != "" {
		t.Skipf("%s is not installed: apt-get install %s", s.name, s.missing)
	}
	if s.err != nil {
		t.Fatalf("%s: %v", s.name, s.err)
	}
}

func (s *server) start() (err error) {
	paths, found := s.find()
	if !found || !canServe {
		s.missing = s.packages
		return nil
	}
	// Not t.TempDir, because the path of a socket is limited to about 100 bytes.
	if s.dir, err = os.MkdirTemp("", "sqlfence"); err != nil {
		return err
	}
	s.uid, s.gid = -1, -1
	if os.Getuid() == 0 {
		if err := s.becomeUser(); err != nil {
			return err
		}
	}
	if err := s.install(s, paths); err != nil {
		return err
	}
	s.stop, err = s.serve(s.command(s, paths))
	return err
}

func (s *server) becomeUser() error {
	u, err := user.Lookup(s.user)
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return err
		}
	}
	if s.uid, err = strconv.Atoi(u.Uid); err != nil {
		return err
	}
	if s.gid, err = strconv.Atoi(u.Gid); err != nil {
		return err
	}
	return os.Chown(s.dir, s.uid, s.gid)
}

func findPostgres() ([]string, bool) {
	candidates, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			candidates = append(candidates, path)
		}
	}
	for _, path := range candidates {
		initdb := filepath.Join(filepath.Dir(path), "initdb")
		if _, err := os.Stat(initdb); err == nil {
			return []string{path, initdb}, true
		}
	}
	return nil, false
}

func installPostgres(s *server, paths []string) error {
	return s.run(exec.Command(paths[1], "-D", filepath.Join(s.dir, "data"), "-U", "postgres", "-A", "trust",
		"-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"))
}

func runPostgres(s *server, paths []string) *exec.Cmd {
	return exec.Command(paths[0], "-D", filepath.Join(s.dir, "data"), "-k", s.dir,
		"-c", "listen_addresses=", "-c", "max_connections=200", "-c", "shared_buffers=32MB",
		"-c", "max_prepared_transactions=5",
		"-c", "deadlock_timeout=20ms") // how soon it looks for a deadlock
}

func findMariaDB() ([]string, bool) {
	var found []string
	for _, name := range []string{"mariadbd", "mariadb-install-db"} {
		path, err := exec.LookPath(name)
		if err != nil {
			path, err = exec.LookPath("/usr/sbin/" + name) // often not in PATH
		}
		if err != nil {
			return nil, false
		}
		found = append(found, path)
	}
	return found, true
}

func installMariaDB(s *server, paths []string) error {
	// A tmpdir each: temporary tables of concurrent installations have the same names.
	return s.run(exec.Command(paths[1], "--no-defaults",
		"--datadir="+filepath.Join(s.dir, "data"), "--tmpdir="+s.dir,
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"))
}

func runMariaDB(s *server, paths []string) *exec.Cmd {
	return exec.Command(paths[0], "--no-defaults", "--datadir="+filepath.Join(s.dir, "data"), "--tmpdir="+s.dir,
		"--socket="+s.socket(), "--pid-file="+filepath.Join(s.dir, "pid"),
		"--skip-networking", "--skip-name-resolve",
		"--max-connections=200", "--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0",
		"--log-warnings=2") // the lowest level at which it logs that it is ready
}

// runMariaDBWithLog keeps a log of changes, as a server with replicas does.
func runMariaDBWithLog(s *server, paths []string) *exec.Cmd {
	cmd := runMariaDB(s, paths)
	cmd.Args = append(cmd.Args, "--log-bin="+filepath.Join(s.dir, "log"), "--binlog-format=MIXED")
	return cmd
}

// socket returns the path of MariaDB's socket.
func (s *server) socket() string { return filepath.Join(s.dir, "sock") }

// run runs a program until it exits.
func (s *server) run(cmd *exec.Cmd) error {
	stop, err := s.launch(cmd, "")
	if err != nil {
		return err
	}
	return stop()
}

// serve starts a program, waits until it is ready, and returns how to stop it.
func (s *server) serve(cmd *exec.Cmd) (stop func(), err error) {
	wait, err := s.launch(cmd, s.ready)
	if err != nil {
		return nil, err
	}
	return func() {
		_ = cmd.Process.Signal(s.quickly)
		_ = wait() // the error is the signal
	}, nil
}

var errNotReady = errors.New("exited before it was ready")

func fail(cmd *exec.Cmd, err error, log *logged) error {
	return fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, log)
}
