// Package member_test tests package member against one member of a real etcd.
package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/member"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
)

func TestMemberComesBackAndIsWatched(t *testing.T) {
	t.Parallel()
	ctx := testkit.Deadline(t)
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	sess := testkit.Open(t, srv.Client(t), session.Options{TTL: time.Minute})
	watching, stop := context.WithCancel(ctx)
	defer stop()
	groups := make(chan member.Group, 100)
	ended := make(chan error, 1)
	go func() { // joined below
		for g, err := range member.NewReader(cli, "workers").Watch(watching) {
			if err != nil {
				ended <- err
				return
			}
			groups <- g
		}
	}()
	await := func(what string, is func(member.Group) bool) member.Group {
		t.Helper()
		for {
			select {
			case g := <-groups:
				if is(g) {
					return g
				}
			case <-ctx.Done():
				t.Fatalf("%s: not told", what)
			}
		}
	}
	of := func(name, value string, retiring bool) func(member.Group) bool {
		return func(g member.Group) bool {
			return len(g.Members) == 1 && g.Members[0].Name == name && g.Members[0].Value == value &&
				g.Members[0].Retiring == retiring
		}
	}
	none := func(g member.Group) bool { return len(g.Members) == 0 }

	await("at first", none)
	m, err := member.Join(ctx, sess, "workers", member.Options{Name: "a", Value: "1"})
	if err != nil {
		t.Fatal(err)
	}
	first := await("joined", of("a", "1", false)).Members[0]
	if err := m.Update(ctx, "2"); err != nil {
		t.Error(err)
	}
	await("updated", of("a", "2", false))
	if err := m.Retire(ctx); err != nil {
		t.Error(err)
	}
	await("retiring", of("a", "2", true))

	srv.Revoke(t, sess.Lease())
	await("the lease is revoked", none)
	again := await("a new lease", of("a", "2", true)).Members[0]
	if again.Lease == first.Lease || again.Key == first.Key || again.Created <= first.Created ||
		again.Joined != first.Joined {
		t.Errorf("%+v, then %+v", first, again)
	}
	if err := m.Leave(ctx); err != nil {
		t.Error(err)
	}
	await("left", none)
	if kvs := srv.Keys(t, "holdfast/member/"); len(kvs) != 0 {
		t.Errorf("left behind: %v", kvs)
	}
	stop()
	if err := <-ended; err == nil {
		t.Error("the range ended without an error")
	}
}
