//go:build linux

package cmd

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
)

// The commands of the page for other languages.
func TestCommandsThatReadEntriesPrintTheHolder(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("etcdctl"); err != nil {
		t.Skip("no etcdctl: apt-get install etcd-client")
	}
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), "first")
	lk := hold(t, sess, "billing/job-7")
	term, err := election.New(sess, "scheduler").With(election.Options{Value: ""}).Campaign(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	commands := commandsOf(t, filepath.Join("..", "..", "docs", "format.md"), "## Who holds")
	p := begin(t, exec.Command("sh", "-ec", commands), "ETCDCTL_API=3", "ETCDCTL_ENDPOINTS="+srv.Endpoints()[0]).exits(0)
	for _, key := range []string{lk.Key(), term.Key()} {
		if out := p.stdout.String(); !strings.Contains(out, key+"\n") {
			t.Errorf("they print %q, and not %q", out, key)
		}
	}
}

// The second column of the table in docs/command.md: whatever ends the lock of etcdctl lock, its command goes on beside
// the next holder.
func TestCommandOfEtcdctlLockRunsBesideTheNextHolder(t *testing.T) {
	t.Parallel()
	etcdctl, err := exec.LookPath("etcdctl")
	if err != nil {
		t.Skip("no etcdctl: apt-get install etcd-client")
	}
	for name, lose := range map[string]func(t *testing.T, srv *etcdtest.Server, p *process, key string){
		"the lease is revoked": func(t *testing.T, srv *etcdtest.Server, _ *process, _ string) {
			srv.RevokeHolder(t, "x/")
		},
		"the key is deleted": func(t *testing.T, srv *etcdtest.Server, _ *process, key string) {
			if _, err := srv.Client(t).Delete(deadline(t), key); err != nil {
				t.Fatal(err)
			}
		},
		"etcdctl is killed": func(t *testing.T, srv *etcdtest.Server, p *process, _ string) {
			if err := p.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			srv.RevokeHolder(t, "x/") // for the end of its TTL, after 60 s
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := etcdtest.Start(t)
			args := append([]string{"--endpoints", srv.Endpoints()[0], "lock", "x", "--"}, reportsItself...)
			p := begin(t, exec.Command(etcdctl, args...), "ETCDCTL_API=3")
			pid := p.pidOf("pid")
			t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // it leads no group
			lose(t, srv, p, string(srv.WaitForKeys(t, "x/", 1)[0].Key))
			lk, err := locker.NewMutexAt(open(t, srv.Client(t), "next"), "x").Lock(deadline(t))
			if err != nil {
				t.Fatal(err)
			}
			if gone(pid) {
				t.Errorf("the command has ended; stderr %q", strings.TrimSpace(p.stderr.String()))
			}
			if err := lk.Unlock(deadline(t)); err != nil {
				t.Error(err)
			}
		})
	}
}
