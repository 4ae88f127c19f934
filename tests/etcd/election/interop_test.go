package election_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

const legacy = "/legacy/scheduler" // as in the configuration of an old fleet

func upstreamSession(t testing.TB, cli *clientv3.Client) *concurrency.Session {
	t.Helper()
	s, err := concurrency.NewSession(cli, concurrency.WithTTL(60))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Candidates of both kinds are in one queue, and observers of both kinds see all of
// them.
func TestUpstreamElectionAndOursAreOneElection(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	ours := election.NewAt(open(t, srv.Client(t), session.Options{}), legacy)
	told := observe(t, election.NewAt(open(t, srv.Client(t), session.Options{}), legacy))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	theirs := concurrency.NewElection(upstreamSession(t, srv.Client(t)), legacy).Observe(ctx)
	sees := func(value string) {
		t.Helper()
		for {
			resp := await(t, fmt.Sprintf("upstream's observer sees %q", value), theirs)
			if resp == nil {
				t.Fatal("upstream's observer has ended")
			}
			if string(resp.Kvs[0].Value) == value {
				return
			}
		}
	}
	expect(t, told, "")

	upstream := concurrency.NewElection(upstreamSession(t, srv.Client(t)), legacy)
	if err := upstream.Campaign(deadline(t), "upstream"); err != nil {
		t.Fatal(err)
	}
	if l := expect(t, told, "upstream"); l.Token.Revision() != upstream.Rev() || l.Key != upstream.Key() {
		t.Errorf("saw %+v, upstream's entry %s is of revision %d", l, upstream.Key(), upstream.Rev())
	}
	sees("upstream")
	if err := upstream.Proclaim(deadline(t), "upstream, proclaimed"); err != nil {
		t.Fatal(err)
	}
	expect(t, told, "upstream, proclaimed")
	sees("upstream, proclaimed")

	c := campaignLater(deadline(t), ours, "ours")
	srv.WaitForKeys(t, legacy+"/", 2)
	third := concurrency.NewElection(upstreamSession(t, srv.Client(t)), legacy)
	behind := later(func() error { return third.Campaign(deadline(t), "third") })
	srv.WaitForKeys(t, legacy+"/", 3)
	if len(c) != 0 || len(behind) != 0 {
		t.Fatal("a candidate leads while another does")
	}
	if err := upstream.Resign(deadline(t)); err != nil {
		t.Fatal(err)
	}
	term := won(t, c)
	if l := expect(t, told, "ours"); l.Token != term.Token() {
		t.Errorf("saw %+v", l)
	}
	sees("ours")
	resp, err := third.Leader(deadline(t))
	if err != nil || string(resp.Kvs[0].Key) != term.Key() || resp.Kvs[0].CreateRevision != int64(term.Token()) {
		t.Errorf("upstream says that %v leads, %v", resp, err)
	}
	if err := term.Proclaim(deadline(t), "ours, proclaimed"); err != nil {
		t.Fatal(err)
	}
	expect(t, told, "ours, proclaimed")
	sees("ours, proclaimed")
	if len(behind) != 0 {
		t.Fatal("upstream leads while ours does")
	}
	resign(t, term)
	if err := await(t, "upstream leads", behind); err != nil {
		t.Error(err)
	}
	expect(t, told, "third")
	sees("third")
	if err := third.Resign(deadline(t)); err != nil {
		t.Error(err)
	}
	expect(t, told, "")
}

// etcdctl is a running etcdctl. It ends with the test, or on an interrupt, on which it
// resigns.
type etcdctl struct {
	cmd   *exec.Cmd
	lines <-chan string
}

func startEtcdctl(t *testing.T, srv *etcdtest.Server, args ...string) *etcdctl {
	t.Helper()
	path, err := exec.LookPath("etcdctl")
	if err != nil {
		t.Skip("there is no etcdctl: apt-get install etcd-client")
	}
	cmd := exec.Command(path, append([]string{"--endpoints", strings.Join(srv.Endpoints(), ",")}, args...)...)
	cmd.Env = append(os.Environ(), "ETCDCTL_API=3")
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 64)
	read := make(chan struct{})
	go func() { // joined in the cleanup
		defer close(read)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // fails after an interrupt or a kill
		in.Close()
		<-read
	})
	return &etcdctl{cmd, lines}
}

func (c *etcdctl) says(t *testing.T, key, value string) {
	t.Helper()
	for {
		line := await(t, fmt.Sprintf("etcdctl says %q", value), c.lines)
		if key != "" && line != key {
			continue
		}
		if key != "" {
			line = await(t, fmt.Sprintf("etcdctl says %q", value), c.lines)
		}
		if line == value {
			return
		}
	}
}

func TestEtcdctlElectAndOursAreOneElection(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	ours := election.NewAt(open(t, srv.Client(t), session.Options{}), legacy)
	told := observe(t, ours)
	expect(t, told, "")
	listen := startEtcdctl(t, srv, "elect", "--listen", legacy)

	ctl := startEtcdctl(t, srv, "elect", legacy, "etcdctl")
	ctl.says(t, "", "etcdctl")
	leader := expect(t, told, "etcdctl")
	listen.says(t, leader.Key, "etcdctl")

	c := campaignLater(deadline(t), ours, "ours")
	srv.WaitForKeys(t, legacy+"/", 2)
	behind := startEtcdctl(t, srv, "elect", legacy, "behind")
	srv.WaitForKeys(t, legacy+"/", 3)
	if len(c) != 0 {
		t.Fatal("ours leads while etcdctl does")
	}
	if err := ctl.cmd.Process.Signal(syscall.SIGINT); err != nil { // it resigns
		t.Fatal(err)
	}
	term := won(t, c)
	expect(t, told, "ours")
	listen.says(t, term.Key(), "ours")
	if err := term.Proclaim(deadline(t), "ours, proclaimed"); err != nil {
		t.Fatal(err)
	}
	expect(t, told, "ours, proclaimed")
	listen.says(t, term.Key(), "ours, proclaimed")
	if len(behind.lines) != 0 {
		t.Fatalf("etcdctl leads while ours does: %q", <-behind.lines)
	}
	resign(t, term)
	behind.says(t, "", "behind")
	listen.says(t, expect(t, told, "behind").Key, "behind")
}
