//go:build linux

package cmd

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

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

func TestCtrlZStopsBothAndTheyGoOn(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	w := onTerminal(t, srv.Endpoints(), append([]string{"run", "x", "--"}, reportsItself...)...)
	pid := w.pidOf("pid")
	w.keys("\x1a")
	eventually(t, "both are stopped", func() bool { return state(w.cmd.Process.Pid) == "T" && state(pid) == "T" })
	w.signal(syscall.SIGCONT)
	eventually(t, "both go on", func() bool { return state(w.cmd.Process.Pid) != "T" && state(pid) != "T" })
	w.keys("\x03")
	w.exits(128 + int(syscall.SIGINT))
}

func TestCommandThatLostItsLockDuringCtrlZIsKilled(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	w := onTerminal(t, srv.Endpoints(), "run", "--ttl=2s", "x", "--", "sh", "-c",
		`trap 'echo went on' CONT; echo pid $$; read line; echo went on`)
	pid := w.pidOf("pid")
	w.keys("\x1a")
	eventually(t, "both are stopped", func() bool { return state(w.cmd.Process.Pid) == "T" && state(pid) == "T" })
	srv.WaitForKeys(t, "holdfast/", 0)
	w.signal(syscall.SIGCONT)
	w.exits(79)
	if !gone(pid) || strings.Contains(w.stdout.String(), "went on") {
		t.Errorf("the command went on without the lock: %s", w.stdout)
	}
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
