//go:build linux

package cmd

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/locker"
)

// endsInOrder is a command that takes until there is a file to end after SIGTERM.
func endsInOrder(file string) []string {
	return []string{"sh", "-c", `trap 'echo got TERM; while [ ! -e "$0" ]; do sleep 0.02; done; exit 0' TERM
		echo pid $$; while :; do sleep 0.02; done`, file}
}

func TestKickedCommandEndsInOrderAndKeepsTheLockMeanwhile(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	file := t.TempDir() + "/go"
	p := holdfast(t, srv.Endpoints(), run(endsInOrder(file), "--drain=60s", "x")...)
	p.pidOf("pid")
	k := holdfast(t, srv.Endpoints(), "kick", "x", "--reason", "because of INC-7", "--wait=1m")
	p.prints(p.stdout, "got TERM")
	show := holdfast(t, srv.Endpoints(), "show", "x").exits(0).stdout.String()
	if !strings.Contains(show, "asked     to let go") || !strings.Contains(show, "INC-7") {
		t.Errorf("show:\n%s", show)
	}
	holdfast(t, srv.Endpoints(), "run", "--try", "x", "--", "true").exits(75)
	holdfast(t, srv.Endpoints(), "kick", "x", "--reason=again", "--wait=300ms").exits(75)
	create(t, file)
	if out := k.exits(0).stdout.String(); !strings.Contains(out, " has let go of lock x\n") {
		t.Errorf("kick: %s", out)
	}
	p.exits(79)
	p.prints(p.stderr, "SIGTERM to the command")
	p.prints(p.stderr, "INC-7")
	srv.WaitForKeys(t, "holdfast/", 0)
}

// Etcd does not answer any more once the holder was asked.
func TestKickSaysThatItsOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	p := holdfast(t, srv.Endpoints(), run(endsInOrder(t.TempDir()+"/never"), "--drain=60s", "x")...)
	p.pidOf("pid")
	k := holdfast(t, link.Endpoints(), "kick", "x", "--reason=r", "--wait=1h", "--command-timeout=2s")
	p.prints(p.stdout, "got TERM")
	link.BlackHole()
	k.exits(69)
	if err := k.stderr.String(); !strings.Contains(err, "whether it still holds lock x is not known") {
		t.Errorf("kick: %s", err)
	}
}

// A dead holder may still act until its lock delay is over: its lock is not free.
func TestKickSaysThatThereIsNoHolderYet(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	died := layout.Claim{LockDelay: time.Minute, ToldWithin: 2 * time.Second}
	if _, err := srv.Client(t).Put(deadline(t), "holdfast/lock/x/@claim/5eed-X", died.Encode()); err != nil {
		t.Fatal(err)
	}
	holdfast(t, srv.Endpoints(), run(reportsItself, "x")...)
	srv.WaitForKeys(t, entries, 1)
	k := holdfast(t, srv.Endpoints(), "kick", "x", "--reason=r").exits(75)
	if err := k.stderr.String(); !strings.Contains(err, "lock x has no holder yet: the first of 1 that wait holds it") {
		t.Errorf("kick: %s", err)
	}
}

// What is detached has no holder to ask. Its ticket ends, and the name is free.
func TestKickOfADetachedLockFreesItAtOnce(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), "first")
	for _, wait := range []string{"15s", "0"} {
		if _, err := hold(t, sess, "x").Detach(deadline(t), time.Hour); err != nil {
			t.Fatal(err)
		}
		show := holdfast(t, srv.Endpoints(), "show", "x").exits(0).stdout.String()
		if !strings.Contains(show, "detached  by first until ") {
			t.Errorf("show:\n%s", show)
		}
		kick := holdfast(t, srv.Endpoints(), "kick", "x", "--reason=r", "--wait="+wait).exits(0).stdout.String()
		if want := "lock x was detached by first, and is free: its ticket has ended\n"; kick != want {
			t.Errorf("kick --wait %s: %q, want %q", wait, kick, want)
		}
	}
	explained := holdfast(t, srv.Endpoints(), "explain", "x").exits(0).stdout.String()
	if !strings.Contains(explained, ": detached until ") || !strings.Contains(explained, ": its ticket ended\n") {
		t.Errorf("explain:\n%s", explained)
	}
}

// The command ignores SIGTERM, and --drain is long. When the lock is taken away after all, it is killed before the next
// one holds.
func TestForcedKickAfterAKickKillsTheCommandBeforeTheNextHolds(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	p := holdfast(t, srv.Endpoints(), run(ignoresTERM, "--drain=1h", "x")...)
	pid, grandchild := p.pidOf("pid"), p.pidOf("grandchild")
	holdfast(t, srv.Endpoints(), "kick", "x", "--reason=r", "--wait=300ms").exits(75)
	p.prints(p.stdout, "TERM\n")
	next := holdfast(t, srv.Endpoints(), "run", "x", "--", "sh", "-c",
		fmt.Sprintf("kill -0 %d && echo overlaps; kill -0 %d && echo overlaps; echo ran", pid, grandchild))
	srv.WaitForKeys(t, entries, 2)
	k := holdfast(t, srv.Endpoints(), "kick", "x", "--reason=r", "--force").exits(0)
	if out := k.stdout.String(); !strings.Contains(out, " has let go of lock x\n") {
		t.Errorf("kick: %s", out)
	}
	next.exits(0)
	if out := next.stdout.String(); out != "ran\n" {
		t.Errorf("the next holder: %q", out)
	}
	p.exits(79)
}

// It got SIGTERM when it was asked to let go: the suspension that follows brings no other one.
func TestKickedCommandThatIsCutOffIsKilledBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	p := holdfast(t, link.Endpoints(), run(ignoresTERM, "--ttl=4s", "--drain=1h", "x")...)
	pid, grandchild := p.pidOf("pid"), p.pidOf("grandchild")
	holdfast(t, srv.Endpoints(), "kick", "x", "--reason=r", "--wait=0s").exits(0)
	p.prints(p.stdout, "TERM\n")
	link.BlackHole()
	srv.WaitForKeys(t, sessions, 0)
	if !gone(pid) || !gone(grandchild) {
		t.Error("the lease had ended before the command and its child were killed")
	}
	p.exits(79)
	if n := strings.Count(p.stdout.String(), "TERM\n"); n != 1 {
		t.Errorf("SIGTERM came %d times", n)
	}
}

func TestForcedKickKillsTheCommand(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	p := holdfast(t, srv.Endpoints(), run(ignoresTERM, "--ttl=60s", "x")...)
	pid := p.pidOf("pid")
	k := holdfast(t, srv.Endpoints(), "kick", "x", "--reason=r", "--force").exits(0)
	if !gone(pid) {
		t.Error("the lock is free, and the command runs")
	}
	if out := k.stdout.String(); !strings.Contains(out, " has let go of lock x\n") {
		t.Errorf("kick: %s", out)
	}
	p.exits(79)
	srv.WaitForKeys(t, "holdfast/", 0)
}

// A holder that is stopped has not let go, and kick does not say so. When it goes on it finds that its entry is gone,
// and names the command that tells who has removed it.
func TestForcedKickOfAStoppedHolderSaysThatItHasNotLetGo(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	p := holdfast(t, srv.Endpoints(), run(ignoresTERM, "--ttl=300s", "x")...)
	pid := p.pidOf("pid")
	p.signal(syscall.SIGSTOP)
	k := holdfast(t, srv.Endpoints(), "kick", "x", "--reason", "because of INC-7", "--force").exits(0)
	if out := k.stdout.String(); strings.Contains(out, "has let go") || !strings.Contains(out, "has not let go") {
		t.Errorf("kick: %s", out)
	}
	if gone(pid) {
		t.Error("the command has ended, so this is another case")
	}
	p.signal(syscall.SIGCONT)
	p.exits(79)
	said := p.stderr.String()
	if !strings.Contains(said, "entry deleted") || !strings.Contains(said, "holdfast explain") {
		t.Errorf("the holder: %s", said)
	}
	if said := holdfast(t, srv.Endpoints(), "explain", "x").exits(0).stdout.String(); !strings.Contains(said, "INC-7") {
		t.Errorf("explain: %s", said)
	}
}

// A dead holder has not let go either: its lease has ended.
func TestKickOfADeadHolderSaysThatItHasNotLetGo(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	p := holdfast(t, srv.Endpoints(), run(ignoresTERM, "--ttl=5s", "--drain=1h", "x")...)
	p.pidOf("pid")
	k := holdfast(t, srv.Endpoints(), "kick", "x", "--reason=r", "--wait=1m", "-o=json")
	p.prints(p.stdout, "TERM\n")
	p.signal(syscall.SIGSTOP) // it no longer renews
	if out := k.exits(0).stdout.String(); !strings.Contains(out, `"free":true,"let_go":false`) {
		t.Errorf("kick: %s", out)
	}
}

// The claim tells how a hold has ended, so no session key is read. The claims of a prefix stand in the namespace:
// who may not read them is told that, and not that the holder has let go, since its lease may have ended.
func TestKickSaysWhatItMayNotRead(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	const password = "secret"
	cli := srv.Client(t)
	addUser(t, cli, "admins", password, clientv3.PermRead, "holdfast/epoch")
	allow(t, cli, "admins", clientv3.PermReadWrite, "holdfast/lock/", "holdfast/tree/", "theirs/")
	enableAuth(t, cli, password)
	for name, c := range map[string]struct {
		flags []string
		want  string
	}{
		"named":  {nil, " has let go of lock named\n"},
		"theirs": {[]string{"--at"}, " any more; whether it has let go, or its lease has ended, is not known: read "},
	} {
		p := holdfast(t, srv.Endpoints(), run(reportsItself, append(c.flags, "--user=root:"+password, name)...)...)
		p.pidOf("pid")
		kick := append([]string{"kick", name, "--reason=r", "--user=admins:" + password}, c.flags...)
		k := holdfast(t, srv.Endpoints(), kick...).exits(0)
		if out := k.stdout.String(); !strings.Contains(out, c.want) ||
			strings.Contains(out, "permission denied") != strings.Contains(c.want, "not known") {
			t.Errorf("kick of %s: %s", name, out)
		}
		p.exits(79)
	}
}

// A holder that queued before the epoch was raised has no known token once etcd's history is compacted.
func TestHolderWhoseEpochIsCompactedIsKickedByItsRevision(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	for _, named := range []bool{true, false} {
		name := fmt.Sprint("named-", named)
		lk := hold(t, open(t, srv.Client(t), "host-1:77"), name)
		epoch := fmt.Sprint(lk.Token().Epoch() + 1)
		holdfast(t, srv.Endpoints(), "epoch", "bump", epoch).exits(0)
		srv.Compact(t)
		revision := fmt.Sprint(lk.Token().Revision())
		show := holdfast(t, srv.Endpoints(), "show", name).exits(0).stdout.String()
		if !strings.Contains(show, "--token "+revision+"\n") {
			t.Errorf("show:\n%s\nwant --token %s", show, revision)
		}
		args := []string{"kick", name, "--reason=r", "--wait=0"}
		if named {
			args = append(args, "--token="+revision)
		}
		holdfast(t, srv.Endpoints(), args...).exits(0)
		<-lk.Done()
	}
}

// Two permits are held, so kick has to be told which one, by the revision that show tells.
func TestPermitIsKickedByItsRevision(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sem := locker.NewSemaphore(open(t, srv.Client(t), "host-1:77"), "uploads", 3)
	var held []*locker.Permit
	for _, weight := range []int{1, 2} {
		p, err := sem.Acquire(deadline(t), weight)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, p)
	}
	kick := []string{"kick", "--kind=semaphore", "uploads", "--reason=INC-7"}
	out := holdfast(t, srv.Endpoints(), kick...).exits(64).stderr.String()
	if !strings.Contains(out, "2 clients hold semaphore uploads") {
		t.Errorf("kick: %s", out)
	}
	show := holdfast(t, srv.Endpoints(), "show", "--kind=semaphore", "uploads").exits(0).stdout.String()
	_, revision, _ := strings.Cut(show, "weight 2, revision ")
	revision, _, _ = strings.Cut(revision, "\n")
	go func() {
		<-held[1].Done()
		_ = held[1].Release(context.Background())
	}()
	out = holdfast(t, srv.Endpoints(), append(kick, "--token="+revision)...).exits(0).stdout.String()
	if !strings.Contains(out, "host-1:77 has let go of semaphore uploads\n") || held[0].Check() != nil {
		t.Errorf("kick: %s; the other one: %v", out, held[0].Check())
	}
	holdfast(t, srv.Endpoints(), append(kick, "--token="+revision)...).exits(1)
	_ = held[0].Release(t.Context())
}

func TestKickOfWhatCannotBeKicked(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	lk := hold(t, open(t, srv.Client(t), "host-1:77"), "x")
	theirs, err := concurrency.NewSession(srv.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	if err := concurrency.NewMutex(theirs, "/legacy/job").Lock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	holdfast(t, srv.Endpoints(), "run", "--min-hold=1h", "taken", "--", "true").exits(0)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"kick", "taken", "--reason=r"}, 1, "--force frees it"},
		{[]string{"kick", "free", "--reason=r", "--kind=tree"}, 0, "tree lock free is free"},
		{[]string{"kick", "free", "--reason=r"}, 0, "is free"},
		{[]string{"kick", "x"}, 64, "--reason"},
		{[]string{"kick", "x", "--reason=r", "--at", "--kind=tree"}, 64, "have no tree lock"},
		{[]string{"kick", "x", "--reason=r", "--token=1"}, 1, "host-1:77"}, // which holds now
		{[]string{"kick", "--at", "/legacy/job", "--reason=r"}, 1, "etcdctl lease revoke"},
	} {
		p := holdfast(t, srv.Endpoints(), c.args...).exits(c.code)
		if all := p.stdout.String() + p.stderr.String(); !strings.Contains(all, c.says) {
			t.Errorf("%v says %q, want %q", c.args, all, c.says)
		}
	}
	if err := lk.Check(); err != nil {
		t.Error(err)
	}
}
