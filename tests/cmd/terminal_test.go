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
	p := begin(t, cmd, env...)
	slave.Close()
	copied := make(chan struct{})
	go func() { // joined by the cleanup; ends when the last process has closed the terminal
		defer close(copied)
		_, _ = io.Copy(p.stdout, master)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		<-copied
		master.Close()
	})
	return &terminal{p, master}
}

// keys types.
func (w *terminal) keys(text string) {
	w.t.Helper()
	if _, err := w.master.WriteString(text); err != nil {
		w.t.Fatal(err)
	}
}
