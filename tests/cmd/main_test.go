//go:build linux

// Package cmd tests the command holdfast as processes, on an etcd in this one. The test builds the command.
package cmd

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
)

var (
	deadline   = testkit.Deadline
	eventually = testkit.Eventually
)

func open(t testing.TB, cli *clientv3.Client, owner string) *session.Session {
	t.Helper()
	return testkit.Open(t, cli, session.Options{Owner: owner})
}

// program is the command under test.
var program string

// With -full the program has the race detector, too: it then takes twice as much of a processor.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "6"); err != nil { // they wait for other processes
		panic(err)
	}
	flag.Parse()
	dir, err := os.MkdirTemp("", "holdfast-")
	if err == nil {
		program = filepath.Join(dir, "holdfast")
		race := fmt.Sprintf("-race=%t", bubble.Race && rounds.Full())
		build := exec.Command("go", "build", "-o", program, "-ldflags=-s -w", race, ".")
		build.Dir = filepath.Join("..", "..", "cmd", "holdfast")
		build.Stderr = os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build holdfast:", err)
		os.Exit(1)
	}
	leak.Main(m, func() { _ = os.RemoveAll(dir) })
}

// readSources reads the sources of the command through a link in this module: "go test" then does not reuse a cached
// result after one of them has changed. It notes only what is read while tests run.
var readSources = sync.OnceFunc(func() {
	files, err := filepath.Glob(filepath.Join("testdata", "sources", "*.go"))
	if err != nil || len(files) == 0 {
		panic(fmt.Sprint("testdata/sources does not lead to the command: ", err))
	}
	for _, file := range files {
		if _, err := os.ReadFile(file); err != nil {
			panic(err)
		}
	}
})

// process is a running holdfast.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout *output
	stderr *output
	copied chan struct{} // if not nil: closed when all that was printed on a terminal is in stdout
	ended  chan struct{}
}

// output is what a process has printed so far.
type output struct {
	mu      sync.Mutex // protects the rest
	text    bytes.Buffer
	changed chan struct{} // closed at the next write
}

func newOutput() *output { return &output{changed: make(chan struct{})} }

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed)
	o.changed = make(chan struct{})
	return o.text.Write(b)
}

func (o *output) String() string {
	text, _ := o.read()
	return text
}

func (o *output) read() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String(), o.changed
}

// patience is how long a test waits for what must come. No test measures it: a busy machine may be twenty times slower.
const patience = time.Minute

// holdfast starts the command on the etcd at these endpoints. It is killed when the test ends.
func holdfast(t *testing.T, endpoints []string, args ...string) *process {
	t.Helper()
	return begin(t, exec.Command(program, args...), "ETCDCTL_ENDPOINTS="+strings.Join(endpoints, ","),
		"ETCDCTL_COMMAND_TIMEOUT="+patience.String()) // on a busy machine a process takes its time
}

// begin starts a command with these variables beside those of the test.
func begin(t *testing.T, cmd *exec.Cmd, env ...string) *process {
	t.Helper()
	return (&process{t: t, cmd: cmd, stdout: newOutput(), stderr: newOutput(), ended: make(chan struct{})}).begin(env)
}

func (p *process) begin(env []string) *process {
	p.t.Helper()
	readSources()
	t, cmd := p.t, p.cmd
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, env...)
	if cmd.Stdout == nil {
		cmd.Stdout = p.stdout
	}
	if cmd.Stderr == nil {
		cmd.Stderr = p.stderr
	}
	cmd.WaitDelay = patience // what a killed holdfast leaves may keep the pipes open
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // joined by the cleanup
		defer close(p.ended)
		_ = cmd.Wait()
		if p.copied != nil {
			select {
			case <-p.copied:
			case <-time.After(patience):
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("%v\nstdout:\n%s\nstderr:\n%s", cmd.Args, p.stdout, p.stderr)
		}
	})
	return p
}

// exits waits for the end of the process and expects an exit code.
func (p *process) exits(code int) *process {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("%v does not end", p.cmd.Args)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Fatalf("%v: exit code %d, want %d\nstdout: %s\nstderr: %s", p.cmd.Args, got, code, p.stdout, p.stderr)
	}
	return p
}

// prints waits until the process has printed want.
func (p *process) prints(o *output, want string) {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		text, changed := o.read()
		if strings.Contains(text, want) {
			return
		}
		select {
		case <-changed:
		case <-p.ended:
			if text, _ := o.read(); !strings.Contains(text, want) {
				p.t.Fatalf("%v has ended without %q\nstdout: %s\nstderr: %s", p.cmd.Args, want, p.stdout, p.stderr)
			}
			return
		case <-timeout:
			p.t.Fatalf("%v does not print %q\nstdout: %s\nstderr: %s", p.cmd.Args, want, p.stdout, p.stderr)
		}
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// gone reports whether a process has ended, also one that its parent has not reaped yet.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return bytes.HasPrefix(rest, []byte("Z"))
}

// hold acquires a lock in this process.
func hold(t testing.TB, sess *session.Session, name string) *locker.Lock {
	t.Helper()
	lk, err := locker.NewMutex(sess, name).Lock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

// queue has n more sessions wait for a lock that is held.
func queue(t testing.TB, srv *etcdtest.Server, name string, owners ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var waiting sync.WaitGroup
	t.Cleanup(func() { cancel(); waiting.Wait() })
	for i, owner := range owners {
		sess := open(t, srv.Client(t), owner)
		waiting.Go(func() {
			if lk, err := locker.NewMutex(sess, name).Lock(ctx); err == nil {
				<-ctx.Done()
				_ = lk.Unlock(ctx)
			}
		})
		srv.WaitForKeys(t, "holdfast/lock/"+name+"/@/", i+2)
	}
	t.Cleanup(func() { cancel(); waiting.Wait() }) // before the sessions close
}

// create makes a file that a command waits for.
func create(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
