//go:build linux

package cmd

import (
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/etcdtest"
)

func TestSignalWhileRunWaitsGivesUpItsPlace(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	hold(t, open(t, srv.Client(t), "other"), "x")
	p := holdfast(t, srv.Endpoints(), "run", "x", "--", "echo", "ran")
	srv.WaitForKeys(t, entries, 2)
	p.signal(syscall.SIGTERM)
	p.exits(128 + int(syscall.SIGTERM))
	if srv.WaitForKeys(t, entries, 1); p.stdout.String() != "" {
		t.Errorf("stdout: %q", p.stdout)
	}
}

func TestSignalsAreForwardedToTheCommand(t *testing.T) {
	t.Parallel()
	// If this test runs under nohup, it ignores SIGHUP, and each process that it starts would do so, too. A signal that it
	// listens to has its default disposition in them.
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	srv := etcdtest.Start(t)
	p := holdfast(t, srv.Endpoints(), "run", "x", "--", "sh", "-c", `
		for s in HUP INT QUIT USR1 USR2; do trap "echo got $s" $s; done
		trap 'echo got TERM; exit 3' TERM
		echo ready
		while :; do sleep 0.02; done`)
	p.prints(p.stdout, "ready")
	for _, s := range []struct {
		signal syscall.Signal
		name   string
	}{
		{syscall.SIGHUP, "HUP"}, {syscall.SIGUSR1, "USR1"}, {syscall.SIGUSR2, "USR2"}, {syscall.SIGTERM, "TERM"},
	} {
		p.signal(s.signal)
		p.prints(p.stdout, "got "+s.name)
	}
	p.exits(3)
	if kvs := srv.Keys(t, "holdfast/"); len(kvs) != 0 {
		t.Errorf("left in etcd: %v", kvs)
	}
}

// As any program that nohup starts. What decides is that the first SIGHUP came before the command was started.
func TestHangupEndsNothingUnderNohup(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	lk := hold(t, open(t, srv.Client(t), "other"), "x")
	p := begin(t, exec.Command("nohup", program, "run", "x", "--", "sh", "-c", `
		trap 'echo got USR1; exit 3' USR1
		echo ready
		while :; do sleep 0.02; done`), "ETCDCTL_ENDPOINTS="+srv.Endpoints()[0])
	srv.WaitForKeys(t, entries, 2)
	p.signal(syscall.SIGHUP)
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	p.prints(p.stdout, "ready")
	p.signal(syscall.SIGHUP)
	p.signal(syscall.SIGUSR1)
	p.prints(p.stdout, "got USR1")
	p.exits(3)
}

func TestSignalEndsACommandThatIsStopped(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	p := holdfast(t, srv.Endpoints(), run(reportsItself, "x")...)
	pid := p.pidOf("pid")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command is stopped", func() bool { return state(pid) == "T" })
	p.signal(syscall.SIGTERM)
	p.exits(128 + int(syscall.SIGTERM))
}

func TestOutputThatIsNotReadAnyMoreEndsItSilently(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	reader.Close()
	cmd := exec.Command(program, "ls")
	cmd.Stdout = writer
	p := begin(t, cmd, "ETCDCTL_ENDPOINTS="+srv.Endpoints()[0]).exits(128 + int(syscall.SIGPIPE))
	if p.stderr.String() != "" {
		t.Errorf("stderr %q", p.stderr)
	}
}

// What was not answered by then says nothing of the cluster.
func TestSignalEndsCheckWithoutAVerdict(t *testing.T) {
	t.Parallel()
	hangs, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	p := holdfast(t, []string{hangs.Addr().String()}, "check", "-o", "json")
	conn, err := hangs.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p.signal(syscall.SIGTERM)
	p.exits(128 + int(syscall.SIGTERM))
	if out := p.stdout.String(); strings.Contains(out, `"fit"`) {
		t.Errorf("%s", out)
	}
}
