package etcdtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/embed"
	"golang.org/x/sys/unix"
)

// memberEnv in the environment makes a process that imports this package run a member, and nothing else.
const memberEnv = "ETCDTEST_MEMBER"

func init() {
	if s, ok := os.LookupEnv(memberEnv); ok {
		os.Unsetenv(memberEnv)
		if err := beMember(s); err != nil {
			fmt.Fprintln(os.Stderr, "etcdtest: member:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// beMember runs a member until stdin ends, which it does when the parent process ends in any way. It prints the address
// where it listens for other members, and another line when it serves clients.
func beMember(encoded string) error {
	var s spec
	if err := json.Unmarshal([]byte(encoded), &s); err != nil {
		return err
	}
	etcd, err := embed.StartEtcd(s.config())
	if err != nil {
		return err
	}
	fmt.Println(etcd.Peers[0].Addr())
	go func() { // ends with the process
		<-etcd.Server.ReadyNotify()
		fmt.Println("ready")
	}()
	go func() { // ends with the process
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return <-etcd.Err()
}

// A process is a member that runs in its own process.
type process struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	peers  string
	client string
	ready  chan struct{} // closed when it serves clients
	exited chan struct{} // closed when it has exited
	paused bool          // Server.mu protects it
}

// startProcess runs a program, by default the executable of this process again; there, init calls beMember.
func startProcess(program string, s spec) (member, error) {
	encoded, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	if program == "" {
		if program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	m := &process{cmd: exec.Command(program), client: s.Client, ready: make(chan struct{}), exited: make(chan struct{})}
	m.cmd.Env = append(os.Environ(), memberEnv+"="+string(encoded))
	m.cmd.Stderr = os.Stderr
	// In a process group of its own it gets no signals from the terminal, and the kernel continues it if the parent
	// ends while it is paused.
	m.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if m.stdin, err = m.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() {
		m.stdin.Close()
		return nil, fmt.Errorf("process of the member: %w", m.cmd.Wait())
	}
	m.peers = lines.Text()
	go func() { // ends with the process; joined by stop
		defer close(m.exited)
		if lines.Scan() {
			close(m.ready)
		}
		for lines.Scan() {
		}
		m.cmd.Wait()
	}()
	return m, nil
}

func (m *process) peerAddr() string { return m.peers }

func (m *process) waitReady(ctx context.Context) error {
	select {
	case <-m.ready:
		return nil
	case <-m.exited:
		return fmt.Errorf("process of the member: %v", m.cmd.ProcessState)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m *process) raft() (id, leader types.ID) {
	if m.paused {
		return 0, 0
	}
	cli, err := newClient([]string{m.client})
	if err != nil {
		return 0, 0
	}
	defer cli.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	status, err := cli.Status(ctx, m.client)
	if err != nil {
		return 0, 0
	}
	return types.ID(status.Header.MemberId), types.ID(status.Leader)
}

func (m *process) stop() {
	m.cmd.Process.Kill()
	<-m.exited
	m.stdin.Close()
}

// pause stops the process, and returns when it is stopped.
func (m *process) pause() error {
	if m.paused {
		return nil
	}
	if err := m.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		return err
	}
	m.paused = true
	for {
		err := unix.Waitid(unix.P_PID, m.cmd.Process.Pid, nil, unix.WSTOPPED, nil)
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("waitid", err)
		}
	}
}

func (m *process) resume() error {
	m.paused = false
	return m.cmd.Process.Signal(unix.SIGCONT)
}
