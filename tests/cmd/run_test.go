//go:build linux

package cmd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
)

const (
	entries  = "holdfast/lock/x/@/"
	sessions = "holdfast/session/" // gone with the lease and its entries, which claims outlive
)

// pidOf waits until a command has printed a name and a process ID, and returns that. The group of a process that prints
// "pid" is killed when the test ends.
func (p *process) pidOf(name string) int {
	p.t.Helper()
	p.prints(p.stdout, name+" ")
	var pid int
	eventually(p.t, "the line of "+name+" is complete", func() bool {
		_, rest, _ := strings.Cut(p.stdout.String(), name+" ")
		line, _, whole := strings.Cut(rest, "\n")
		if whole {
			var err error
			if pid, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
				p.t.Fatal(err)
			}
		}
		return whole
	})
	if name == "pid" {
		p.t.Cleanup(func() { _ = syscall.Kill(-pid, syscall.SIGKILL) })
	}
	return pid
}

// reportsItself is a command that prints its own pid and runs until a signal ends it.
var reportsItself = []string{"sh", "-c", `echo pid $$; exec sleep 1000`}

// ignoresTERM is a command that SIGTERM does not end, with a child of its own.
var ignoresTERM = []string{"sh", "-c",
	`trap 'echo TERM' TERM; sleep 1000 & echo grandchild $!; echo pid $$; while :; do wait; done`}

// run is how a command is run, after these flags and the name.
func run(command []string, flags ...string) []string {
	return slices.Concat([]string{"run"}, flags, []string{"--"}, command)
}

func TestRunHoldsTheLockWhileTheCommandRunsAndReleasesIt(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	in, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	cmd := exec.Command(program, "run", "x", "--", "sh", "-c",
		`echo "$HOLDFAST_NAME $HOLDFAST_NAMESPACE $HOLDFAST_TOKEN $HOLDFAST_KEY $HOLDFAST_LEASE"
		read line; echo "read $line"; exit 42`)
	cmd.Stdin = in
	p := begin(t, cmd, "ETCDCTL_ENDPOINTS="+srv.Endpoints()[0])
	in.Close()
	entry := srv.WaitForKeys(t, entries, 1)[0]
	want := fmt.Sprintf("x holdfast %d %s %x\n", entry.CreateRevision, entry.Key, entry.Lease)
	p.prints(p.stdout, want)
	if _, err := feed.WriteString("a line\n"); err != nil {
		t.Fatal(err)
	}
	p.exits(42)
	p.prints(p.stdout, "read a line\n")
	if kvs := srv.Keys(t, "holdfast/"); len(kvs) != 0 {
		t.Errorf("left in etcd: %v", kvs)
	}
}

// A program in Go, Python or C takes the first of two variables of one name.
func TestNestedRunTellsItsOwnLockOnly(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	p := holdfast(t, srv.Endpoints(), "run", "a", "--", program, "run", "b", "--", "env").exits(0)
	var told []string
	for line := range strings.Lines(p.stdout.String()) {
		if strings.HasPrefix(line, "HOLDFAST_NAME=") {
			told = append(told, strings.TrimSpace(line))
		}
	}
	if !slices.Equal(told, []string{"HOLDFAST_NAME=b"}) {
		t.Errorf("the command is told %q", told)
	}
}

func TestRunExitCodes(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	hold(t, open(t, srv.Client(t), "other"), "taken")
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	stopped := etcdtest.Start(t)
	stopped.Stop()
	none := "--endpoints=" + stopped.Endpoints()[0]
	for name, c := range map[string]struct {
		args []string
		code int
	}{
		"success":               {[]string{"x", "--", "true"}, 0},
		"the command's own":     {[]string{"x", "--", "sh", "-c", "exit 7"}, 7},
		"ended by a signal":     {[]string{"x", "--", "sh", "-c", "kill -USR1 $$"}, 128 + int(syscall.SIGUSR1)},
		"held, --try":           {[]string{"--try", "taken", "--", "true"}, 75},
		"held, --try, quiet":    {[]string{"--try", "--quiet", "taken", "--", "true"}, 75},
		"held, --wait 0":        {[]string{"--wait=0s", "taken", "--", "true"}, 64},
		"inside itself":         {[]string{"z", "--", program, "run", "z", "--", "true"}, 64},
		"inside itself, --try":  {[]string{"v", "--", program, "run", "--try", "v", "--", "true"}, 75},
		"inside another":        {[]string{"u", "--", program, "elect", "u", "--", program, "run", "w", "--", "true"}, 0},
		"held, --wait":          {[]string{"--wait=50ms", "taken", "--", "true"}, 75},
		"not found":             {[]string{"x", "--", "no-such-command"}, 127},
		"not executable":        {[]string{"x", "--", plain}, 126},
		"a directory":           {[]string{"x", "--", "/"}, 126},
		"no dashes":             {[]string{"x", "true"}, 64},
		"no command":            {[]string{"x", "--"}, 64},
		"bad name":              {[]string{"a//b", "--", "true"}, 64},
		"no TTL":                {[]string{"--ttl=0s", "x", "--", "true"}, 64},
		"bad TTL":               {[]string{"--ttl=1ms", "x", "--", "true"}, 64},
		"--term-after too long": {[]string{"--ttl=10s", "--term-after=4500ms", "x", "--", "true"}, 64},
		"--max-hold":            {[]string{"--max-hold=50ms", "y", "--", "sleep", "1000"}, 124},
		"no etcd":               {[]string{none, "--command-timeout=200ms", "x", "--", "true"}, 69},
		"no etcd, --wait":       {[]string{none, "--command-timeout=200ms", "--wait=100ms", "x", "--", "true"}, 69},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := holdfast(t, srv.Endpoints(), append([]string{"run"}, c.args...)...).exits(c.code)
			speaks := c.code >= 64 && c.code < 128 && !slices.Contains(c.args, "--quiet")
			if said := p.stderr.String() != ""; said != speaks {
				t.Errorf("stderr %q", p.stderr)
			}
		})
	}
}

func TestScriptWithoutAFirstLineIsNamedAsThat(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("echo ran\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := holdfast(t, srv.Endpoints(), "run", "x", "--", script).exits(126)
	if !strings.Contains(p.stderr.String(), "#!/bin/sh") {
		t.Errorf("stderr %q", p.stderr)
	}
}

func TestRunWaitsItsTurn(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	lk := hold(t, open(t, srv.Client(t), "other"), "x")
	p := holdfast(t, srv.Endpoints(), "run", "x", "--", "echo", "ran")
	srv.WaitForKeys(t, entries, 2)
	if out := p.stdout.String(); out != "" {
		t.Errorf("it ran while another held: %q", out)
	}
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	p.exits(0)
	p.prints(p.stdout, "ran")
}

// The command and what it has started get SIGTERM while the lock is suspended, and SIGKILL before etcd ends the lease.
func TestCommandOfASuspendedLockEndsBeforeTheLease(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	p := holdfast(t, link.Endpoints(), run(ignoresTERM, "--ttl=4s", "x")...)
	pid, grandchild := p.pidOf("pid"), p.pidOf("grandchild")
	link.BlackHole()
	p.prints(p.stdout, "TERM\n")
	if gone(pid) {
		t.Error("SIGKILL came with SIGTERM")
	}
	p.prints(p.stderr, "SIGTERM to the command")
	srv.WaitForKeys(t, sessions, 0)
	if !gone(pid) || !gone(grandchild) {
		t.Error("the lease had ended before the command and its child were killed")
	}
	p.exits(79)
}

func TestCommandThatEndsWhileItsLockIsSuspendedWasStopped(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	p := holdfast(t, link.Endpoints(), run(reportsItself, "--ttl=4s", "x")...)
	p.pidOf("pid")
	link.BlackHole()
	p.exits(79)
	p.prints(p.stderr, "SIGTERM to the command")
}

func TestSuspensionThatEndsInTimeCostsNothing(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	p := holdfast(t, link.Endpoints(), run(ignoresTERM, "--verbose", "--ttl=4s", "--term-after=1700ms", "x")...)
	p.pidOf("pid")
	link.BlackHole()
	p.prints(p.stderr, "session suspended")
	link.Heal()
	p.prints(p.stderr, "session reconnected")
	// The key goes after more than --term-after.
	cli := srv.Client(t)
	lease, err := cli.Grant(deadline(t), 3)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cli.Put(deadline(t), "later", "", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	srv.WaitForKeys(t, "later", 0)
	if out := p.stdout.String(); strings.Contains(out, "TERM") {
		t.Errorf("SIGTERM after a short suspension: %s", out)
	}
	p.signal(syscall.SIGKILL)
}

// What an operator deletes is noticed within 6 s; a lease that is revoked is noticed at once.
func TestCommandIsKilledWhenItsLockIsTakenAway(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(t *testing.T, srv *etcdtest.Server, key string){
		"entry deleted": func(t *testing.T, srv *etcdtest.Server, key string) {
			if _, err := srv.Client(t).Delete(deadline(t), key); err != nil {
				t.Fatal(err)
			}
		},
		"lease revoked": func(t *testing.T, srv *etcdtest.Server, key string) { srv.RevokeHolder(t, entries) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := etcdtest.Start(t)
			p := holdfast(t, srv.Endpoints(), run(ignoresTERM, "--ttl=60s", "x")...)
			pid, grandchild := p.pidOf("pid"), p.pidOf("grandchild")
			start := time.Now()
			take(t, srv, string(srv.WaitForKeys(t, entries, 1)[0].Key))
			eventually(t, "the command and its child are killed", func() bool { return gone(pid) && gone(grandchild) })
			t.Logf("killed after %v", time.Since(start))
			p.exits(79)
			srv.WaitForKeys(t, "holdfast/", 0)
			if out := p.stdout.String(); strings.Contains(out, "TERM") { // for which there is no time
				t.Errorf("stdout %q", out)
			}
		})
	}
}

func TestKernelKillsTheCommandOfAKilledHoldfast(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	p := holdfast(t, srv.Endpoints(), run(reportsItself, "--ttl=2s", "x")...)
	pid := p.pidOf("pid")
	p.signal(syscall.SIGKILL)
	eventually(t, "the command is killed", func() bool { return gone(pid) })
	srv.WaitForKeys(t, sessions, 0) // with the lease
}

func TestKilledCommandReleasesTheLock(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	p := holdfast(t, srv.Endpoints(), run(reportsItself, "--ttl=600s", "x")...)
	if err := syscall.Kill(p.pidOf("pid"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.exits(128 + int(syscall.SIGKILL))
	if kvs := srv.Keys(t, "holdfast/"); len(kvs) != 0 {
		t.Errorf("left in etcd: %v", kvs)
	}
}

// holdfast alone is stopped for longer than its lease. The command goes on without the lock, which the documentation
// says; its token is smaller than that of the next holder. When holdfast goes on, it kills the command.
func TestStoppedHoldfastKillsItsCommandWhenItGoesOn(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	p := holdfast(t, srv.Endpoints(), run(reportsItself, "--ttl=2s", "x")...)
	pid := p.pidOf("pid")
	token := srv.WaitForKeys(t, entries, 1)[0].CreateRevision
	p.signal(syscall.SIGSTOP)
	srv.WaitForKeys(t, sessions, 0)
	if gone(pid) {
		t.Error("the command has ended; then the documentation's table says too little")
	}
	if next := hold(t, open(t, srv.Client(t), "next"), "x"); next.Token().Revision() <= token {
		t.Errorf("the next token is %v, not above %d", next.Token(), token)
	}
	p.signal(syscall.SIGCONT)
	eventually(t, "the command is killed", func() bool { return gone(pid) })
	p.exits(79)
}

// Whatever the command's own exit code is, it ended without the lock.
func TestCommandThatEndsAfterItsLockDidIsNotTakenForDone(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	file := filepath.Join(t.TempDir(), "go")
	p := holdfast(t, srv.Endpoints(), run([]string{"sh", "-c",
		`echo pid $$; while [ ! -e "$0" ]; do sleep 0.02; done`, file}, "--ttl=2s", "x")...)
	pid := p.pidOf("pid")
	p.signal(syscall.SIGSTOP)
	srv.WaitForKeys(t, sessions, 0)
	create(t, file)
	eventually(t, "the command has ended", func() bool { return gone(pid) })
	p.signal(syscall.SIGCONT)
	p.exits(79)
}

func TestMaxHoldKeepsTheLockUntilTheCommandHasEnded(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	rec := srv.Record(t, entries)
	p := holdfast(t, srv.Endpoints(), "run", "--max-hold=100ms", "--drain=20s", "x", "--", "sh", "-c",
		`trap 'echo got TERM' TERM; echo ready; while [ ! -e "$0" ]; do sleep 0.02; done`, filepath.Join(t.TempDir(), "go"))
	p.prints(p.stdout, "got TERM")
	if n := len(rec.Events(t)); n == 0 || len(srv.Keys(t, entries)) != 1 {
		t.Errorf("the lock was released while the command ran; %d events", n)
	}
	file := p.cmd.Args[len(p.cmd.Args)-1]
	create(t, file)
	p.exits(124)
	srv.WaitForKeys(t, "holdfast/", 0)
}

func TestCommandThatIgnoresMaxHoldIsKilledAfterDrain(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	p := holdfast(t, srv.Endpoints(), run(ignoresTERM, "--max-hold=50ms", "--drain=50ms", "x")...)
	p.exits(124)
	srv.WaitForKeys(t, "holdfast/", 0)
}

func TestRunExcludesEtcdctlLock(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	p := holdfast(t, srv.Endpoints(), run(reportsItself, "--at", "/app/locks/report")...)
	pid := p.pidOf("pid")
	if n := len(srv.WaitForKeys(t, "/app/locks/report/", 1)); n != 1 {
		t.Fatal(n)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.exits(128 + int(syscall.SIGTERM))
	srv.WaitForKeys(t, "/app/", 0)
}

// The command is done at once; the name stays taken.
func TestMinHoldKeepsTheNameTakenAfterTheCommand(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	holdfast(t, srv.Endpoints(), "run", "--try", "--min-hold=1h", "x", "--", "true").exits(0)
	if kvs := srv.Keys(t, entries); len(kvs) != 1 {
		t.Errorf("entries: %v", kvs)
	}
	holdfast(t, srv.Endpoints(), "run", "--try", "--min-hold=1h", "x", "--", "true").exits(75)
	p := holdfast(t, srv.Endpoints(), "run", "--try", "--skip-code=0", "x", "--", "echo", "ran").exits(0)
	if p.stdout.String() != "" || !strings.Contains(p.stderr.String(), "held") {
		t.Errorf("stdout %q, stderr %q", p.stdout, p.stderr)
	}
	p = holdfast(t, srv.Endpoints(), "run", "--try", "--quiet", "--skip-code=9", "x", "--", "true").exits(9)
	if p.stderr.String() != "" {
		t.Errorf("--quiet says %q", p.stderr)
	}
	holdfast(t, srv.Endpoints(), "run", "--try", "--skip-code=256", "x", "--", "true").exits(64)
	holdfast(t, srv.Endpoints(), "run", "--min-hold=-1s", "y", "--", "true").exits(64)
}

func TestWhatAStoppedCommandHasStartedIsKilled(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	p := holdfast(t, srv.Endpoints(), run([]string{"sh", "-c",
		`trap '' TERM; sleep 1000 & echo grandchild $!; trap - TERM; echo pid $$; wait`}, "--max-hold=200ms", "x")...)
	grandchild := p.pidOf("grandchild")
	p.pidOf("pid")
	p.exits(124)
	if !gone(grandchild) {
		t.Error("what the command has started goes on without the lock")
	}
}
