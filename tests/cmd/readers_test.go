package cmd

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
)

func TestShowTellsWhichPathHoldsATreeLockAbove(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), "host-1:77")
	for _, path := range []string{"billing/eu/7", "billing/us"} {
		if _, err := locker.NewTreeMutex(sess, path).Lock(deadline(t)); err != nil {
			t.Fatal(err)
		}
	}
	out := holdfast(t, srv.Endpoints(), "show", "--kind=tree", "billing").exits(0).stdout.String()
	for _, want := range []string{"  path      billing/eu/7\n", "  host-1:77: billing/us\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
}

func TestShowAndKickOfReaders(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	var locks []*locker.ReadLock
	for _, owner := range []string{"first", "second"} {
		lk, err := locker.NewRWMutex(open(t, srv.Client(t), owner), "x").RLock(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		locks = append(locks, lk)
	}
	q, err := admin.New(srv.Client(t), admin.Options{}).Show(deadline(t), "lock", "x")
	if err != nil {
		t.Fatal(err)
	}
	second := q.Entries[1].Token.String()

	show := holdfast(t, srv.Endpoints(), "show", "x").exits(0).stdout.String()
	for _, want := range []string{"held by   first", "waiting   0\n", "\n holds  ", "second, token " + second} {
		if !strings.Contains(show, want) {
			t.Errorf("lacks %q:\n%s", want, show)
		}
	}
	if p := holdfast(t, srv.Endpoints(), "kick", "x", "--reason=r"); !strings.Contains(
		p.exits(64).stderr.String(), "2 clients hold lock x") {
		t.Errorf("without a token: %s", p.stderr)
	}
	// It keeps the lock, because it does not release it.
	p := holdfast(t, srv.Endpoints(), "kick", "x", "--reason=r", "--wait=300ms", "--token", second).exits(75)
	if out := p.stdout.String(); !strings.Contains(out, "second still holds lock x") {
		t.Errorf("a kicked reader that goes on: %s", out)
	}
	<-locks[1].Done()
	_ = locks[1].Unlock(deadline(t)) // reports the kick
	if err := locks[0].Check(); err != nil {
		t.Errorf("the other reader: %v", err)
	}
	holdfast(t, srv.Endpoints(), "kick", "x", "--reason=r", "--wait=300ms").exits(75)
	_ = locks[0].Unlock(deadline(t))
}
