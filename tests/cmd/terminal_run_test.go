//go:build linux

package cmd

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/etcdtest"
)

func TestCommandReadsFromTheTerminalAndGetsCtrlC(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	w := onTerminal(t, srv.Endpoints(), "run", "x", "--", "sh", "-c",
		`trap 'echo got INT; exit 9' INT; read line; echo "read <$line>"; while :; do sleep 0.02; done`)
	srv.WaitForKeys(t, entries, 1)
	w.keys("a line\n")
	w.prints(w.stdout, "read <a line>")
	w.keys("\x03")
	w.prints(w.stdout, "got INT")
	w.exits(9)
	srv.WaitForKeys(t, "holdfast/", 0)
}

// A command that writes into a pipe leaves the terminal to the others of the pipeline.
func TestCommandInAPipelineLeavesTheTerminalAlone(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	w := commandOnTerminal(t, shell(program+` run x -- sh -c 'ps -o tpgid= $$; ps -o pgid= $$' | cat; echo end`),
		"ETCDCTL_ENDPOINTS="+srv.Endpoints()[0])
	w.prints(w.stdout, "end")
	fields := strings.Fields(w.stdout.String())
	if len(fields) != 3 || fields[0] == fields[1] {
		t.Errorf("foreground group and own group: %q; they must differ", fields)
	}
	w.exits(0)
}

// So does one that is started in the background, although it has the terminal as its stdin and stdout.
func TestCommandInTheBackgroundLeavesTheTerminalAlone(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	groups := `sh -c 'ps -o tpgid= $$; ps -o pgid= $$'`
	w := commandOnTerminal(t, shell("set -m; "+program+" run x -- "+groups+" & wait; echo end"),
		"ETCDCTL_ENDPOINTS="+srv.Endpoints()[0])
	w.prints(w.stdout, "end")
	fields := strings.Fields(w.stdout.String())
	if len(fields) != 3 || fields[0] == fields[1] {
		t.Errorf("foreground group and own group: %q; they must differ", fields)
	}
	w.exits(0)
}

// pause types Ctrl-Z and waits until holdfast and its command are stopped.
func (w *terminal) pause(pid int) {
	w.t.Helper()
	w.keys("\x1a")
	eventually(w.t, "both are stopped", func() bool { return state(w.cmd.Process.Pid) == "T" && state(pid) == "T" })
}

func TestCtrlZStopsBothAndTheyGoOn(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	w := onTerminal(t, srv.Endpoints(), append([]string{"run", "x", "--"}, reportsItself...)...)
	pid := w.pidOf("pid")
	w.pause(pid)
	// A script that has started holdfast does not take the terminal back as an interactive shell does.
	if group, err := unix.IoctlGetInt(int(w.master.Fd()), unix.TIOCGPGRP); err != nil || group != w.cmd.Process.Pid {
		t.Errorf("the terminal is left to group %d, %v: Ctrl-C does not reach that of holdfast, %d", group, err,
			w.cmd.Process.Pid)
	}
	w.signal(syscall.SIGCONT)
	eventually(t, "both go on", func() bool { return state(w.cmd.Process.Pid) != "T" && state(pid) != "T" })
	w.keys("\x03")
	w.exits(128 + int(syscall.SIGINT))
}

// A shell stops the foreground group, which the command of a pipeline is not in.
func TestCtrlZInAPipelineStopsBothAndTheyGoOn(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	w := commandOnTerminal(t, shell("set -m; "+program+` run x -- sh -c 'echo pid $$; exec sleep 1000' | cat
		echo all are stopped; read line; fg; echo end`), "ETCDCTL_ENDPOINTS="+srv.Endpoints()[0])
	pid := w.pidOf("pid")
	w.keys("\x1a")
	w.prints(w.stdout, "all are stopped")
	eventually(t, "the command is stopped", func() bool { return state(pid) == "T" })
	w.keys("\n")
	eventually(t, "the command goes on", func() bool { return state(pid) != "T" })
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	w.prints(w.stdout, "end")
	w.exits(0)
	srv.WaitForKeys(t, "holdfast/", 0)
}

// Its terminal is another job's by then.
func TestCommandThatEndsInTheBackgroundLeavesTheTerminalAlone(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	fifo := t.TempDir() + "/go"
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	w := commandOnTerminal(t, shell("set -m; "+program+" run x -- sh -c 'echo pid $$; exec cat "+fifo+`'
		bg; echo goes on >`+fifo+"; wait; read line; echo read $line"), "ETCDCTL_ENDPOINTS="+srv.Endpoints()[0])
	w.pidOf("pid")
	w.keys("\x1a")
	w.prints(w.stdout, "goes on")
	w.keys("a line\n")
	w.prints(w.stdout, "read a line")
	w.exits(0)
}

func TestProgramThatCannotRunLeavesTheTerminalToItsShell(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	file := t.TempDir() + "/no-shebang"
	if err := os.WriteFile(file, []byte("exit 0\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	w := commandOnTerminal(t, shell(program+" run x -- "+file+"; read line; echo read $line"),
		"ETCDCTL_ENDPOINTS="+srv.Endpoints()[0])
	w.prints(w.stdout, "#!/bin/sh")
	w.keys("a line\n")
	w.prints(w.stdout, "read a line")
	w.exits(0)
}

// It cannot go on, and holdfast holds its lock for it. So holdfast says so.
func TestCommandThatTheTerminalStopsIsNamed(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	w := commandOnTerminal(t, shell(program+" run x -- sh -c 'echo pid $$ >&2; read line' | cat"),
		"ETCDCTL_ENDPOINTS="+srv.Endpoints()[0])
	pid := w.pidOf("pid")
	w.prints(w.stdout, "SIGTTIN has stopped the command, which is not in the foreground; the lock is kept")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	w.exits(0)
	srv.WaitForKeys(t, "holdfast/", 0)
}

func TestCommandThatLostItsLockDuringCtrlZIsKilled(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	w := onTerminal(t, srv.Endpoints(), "run", "--ttl=2s", "x", "--", "sh", "-c",
		`trap 'echo went on' CONT; echo pid $$; read line; echo went on`)
	pid := w.pidOf("pid")
	w.pause(pid)
	srv.WaitForKeys(t, sessions, 0)
	w.signal(syscall.SIGCONT)
	w.exits(79)
	if !gone(pid) || strings.Contains(w.stdout.String(), "went on") {
		t.Errorf("the command went on without the lock: %s", w.stdout)
	}
}

// A pause that is long enough to suspend the lock, and not to lose it, ends nothing.
func TestCommandWhoseLockIsStillHeldAfterCtrlZGoesOn(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	w := onTerminal(t, srv.Endpoints(), append([]string{"run", "--ttl=10s", "x", "--"}, reportsItself...)...)
	pid := w.pidOf("pid")
	w.pause(pid)
	lease := clientv3.LeaseID(srv.WaitForKeys(t, entries, 1)[0].Lease)
	eventually(t, "more than 5 of 10 s are over, and the lock is suspended", func() bool {
		resp, err := cli.TimeToLive(deadline(t), lease)
		return err == nil && resp.TTL <= 4 // 4.9 s, say
	})
	w.signal(syscall.SIGCONT)
	eventually(t, "the command goes on", func() bool { return state(pid) != "T" })
	w.keys("\x03")
	w.exits(128 + int(syscall.SIGINT)) // 79: the machine was too slow, and the lock was lost
}

// state is that of a process, such as "S", "T" (stopped), or "" if there is none.
func state(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return string(rest[:1])
}
