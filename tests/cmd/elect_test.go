//go:build linux

package cmd

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
)

const candidates = "holdfast/election/x/@/"

// serves is a command that prints its term and runs until a signal ends it.
var serves = []string{"sh", "-c",
	`echo "pid $$"; echo "token $HOLDFAST_TOKEN value $HOLDFAST_VALUE"; exec sleep 1000`}

func elect(t *testing.T, endpoints []string, flags ...string) *process {
	t.Helper()
	return holdfast(t, endpoints, slices.Concat([]string{"elect"}, flags, []string{"x", "--"}, serves)...)
}

func TestElectStartsTheCommandOfTheLeaderOnly(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	a := elect(t, srv.Endpoints(), "--value", "10.0.0.7:80")
	a.prints(a.stdout, "value 10.0.0.7:80")
	b := elect(t, srv.Endpoints())
	srv.WaitForKeys(t, candidates, 2)
	leader, err := election.NewReader(srv.Client(t), "x").Leader(deadline(t))
	if err != nil || leader.Value != "10.0.0.7:80" {
		t.Errorf("leader %v, %v", leader, err)
	}
	if out := b.stdout.String(); out != "" {
		t.Errorf("the command of a candidate runs: %q", out)
	}
	a.signal(syscall.SIGTERM)
	a.exits(128 + int(syscall.SIGTERM)) // as the command, which it was forwarded to
	b.prints(b.stdout, "value ")
	b.signal(syscall.SIGTERM)
	b.exits(128 + int(syscall.SIGTERM))
	if kvs := srv.Keys(t, "holdfast/"); len(kvs) != 0 {
		t.Errorf("left in etcd: %v", kvs)
	}
}

func TestElectStopsTheCommandWithItsTermAndStartsItInTheNext(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	p := elect(t, srv.Endpoints())
	first := p.pidOf("pid")
	p.prints(p.stdout, "token ")
	srv.RevokeHolder(t, candidates)
	eventually(t, "the command of the first term is killed", func() bool { return gone(first) })
	p.runsAgain()
	p.signal(syscall.SIGINT)
	p.exits(128 + int(syscall.SIGINT))
	srv.WaitForKeys(t, "holdfast/", 0)
}

func (p *process) runsAgain() {
	p.t.Helper()
	eventually(p.t, "the command of the second term runs", func() bool {
		return strings.Count(p.stdout.String(), "token ") == 2
	})
}

func TestElectOnceEndsWithItsTerm(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	p := elect(t, srv.Endpoints(), "--once")
	pid := p.pidOf("pid")
	srv.RevokeHolder(t, candidates)
	p.exits(79)
	if !gone(pid) {
		t.Error("the command goes on")
	}
}

func TestElectEndsWithItsCommand(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	for code, command := range map[int]string{0: "exit 0", 6: "exit 6", 128 + 9: "kill -9 $$"} {
		holdfast(t, srv.Endpoints(), "elect", "x", "--", "sh", "-c", command).exits(code)
	}
	if kvs := srv.Keys(t, "holdfast/"); len(kvs) != 0 {
		t.Errorf("left in etcd: %v", kvs)
	}
}

// An outage of etcd ends the term; when etcd is back, the command runs in a new one. It ended before the lease did.
func TestElectSurvivesAnOutageOfEtcd(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	p := elect(t, link.Endpoints(), "--ttl=2s")
	first := p.pidOf("pid")
	link.BlackHole()
	srv.WaitForKeys(t, candidates, 0)
	if !gone(first) {
		t.Error("the lease had ended before the command was stopped")
	}
	link.Heal()
	p.runsAgain()
	p.signal(syscall.SIGTERM)
	p.exits(128 + int(syscall.SIGTERM))
}

func TestSignalEndsACandidate(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	release := srv.Occupy(t, candidates)
	defer release()
	p := elect(t, srv.Endpoints())
	srv.WaitForKeys(t, candidates, 2)
	p.signal(syscall.SIGTERM)
	p.exits(128 + int(syscall.SIGTERM))
	srv.WaitForKeys(t, candidates, 1)
}

// A leader that is kicked ends its command in order. The next candidate starts its own, and the first campaigns again.
func TestKickedLeadersCommandEndsAndTheNextOneLeads(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	a := elect(t, srv.Endpoints(), "--value", "a")
	first := a.pidOf("pid")
	b := elect(t, srv.Endpoints(), "--value", "b")
	srv.WaitForKeys(t, candidates, 2)
	k := holdfast(t, srv.Endpoints(), "kick", "x", "--kind=election", "--reason", "because of INC-7", "--wait=1m")
	k.exits(0)
	if out := k.stdout.String(); !strings.Contains(out, " has let go of election x\n") || !gone(first) {
		t.Errorf("kick: %s; the command has ended: %v", out, gone(first))
	}
	b.prints(b.stdout, "value b")
	a.prints(a.stderr, "INC-7")
	srv.WaitForKeys(t, candidates, 2)
	for _, p := range []*process{b, a} {
		p.signal(syscall.SIGTERM)
	}
	b.exits(128 + int(syscall.SIGTERM))
}

// Its command drains, and meanwhile both the term ends and a signal comes.
func TestElectThatIsSignaledWhileItsTermEndsDoesNotLeadAgain(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	file := t.TempDir() + "/go"
	p := holdfast(t, srv.Endpoints(), slices.Concat([]string{"elect", "--drain=60s", "x", "--"}, endsInOrder(file))...)
	p.pidOf("pid")
	holdfast(t, srv.Endpoints(), "kick", "x", "--kind=election", "--reason=r", "--wait=0").exits(0)
	p.prints(p.stdout, "got TERM")
	p.signal(syscall.SIGTERM)
	eventually(t, "the signal is forwarded", func() bool { return strings.Count(p.stdout.String(), "got TERM") == 2 })
	create(t, file)
	p.exits(79)
	srv.WaitForKeys(t, "holdfast/", 0)
}
