//go:build linux

package cmd

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal is a process with a terminal of its own.
type terminal struct {
	*process
	master *os.File
}

// onTerminal starts holdfast as a shell would on a terminal: as the leader of a session and in the foreground.
func onTerminal(t *testing.T, endpoints []string, args ...string) *terminal {
	t.Helper()
	return commandOnTerminal(t, exec.Command(program, args...), "ETCDCTL_ENDPOINTS="+strings.Join(endpoints, ","))
}

func commandOnTerminal(t *testing.T, cmd *exec.Cmd, env ...string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	p := &process{t: t, cmd: cmd, stdout: newOutput(), stderr: newOutput(), ended: make(chan struct{})}
	p.copied = make(chan struct{})
	t.Cleanup(func() { master.Close() })
	p.begin(env)
	slave.Close()
	go func() { // joined through ended; stops when the last process has closed the terminal
		defer close(p.copied)
		_, _ = io.Copy(p.stdout, master)
	}()
	return &terminal{p, master}
}

// keys types.
func (w *terminal) keys(text string) {
	w.t.Helper()
	if _, err := w.master.WriteString(text); err != nil {
		w.t.Fatal(err)
	}
}

// shell is a command of a shell without job control.
func shell(text string) *exec.Cmd { return exec.Command("sh", "-c", text) }
