package robustness

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// A third of the requests goes to each member. One that hangs costs a moment: reads are sent to another, too, and a
// watch that is not created goes to the next.
func TestAMemberThatHangsHidesNothing(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3)
	var endpoints []string
	var links []*etcdtest.Link
	for _, m := range cluster.Members() {
		links = append(links, m.Link(t))
		endpoints = append(endpoints, links[len(links)-1].Endpoints()...)
	}
	cli, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	mustSucceed(t, err)
	t.Cleanup(func() { _ = cli.Close() })
	lk := lock(t, open(t, cluster.Client(t), session.Options{Owner: "a"}), "x")
	adm := admin.New(cli, admin.Options{})
	_, err = adm.Show(deadline(t), holdfast.KindLock, "x") // all members are connected
	mustSucceed(t, err)
	links[1].BlackHole()
	for range 6 {
		ctx, cancel := context.WithTimeout(deadline(t), 14*time.Second)
		if _, err := adm.Show(ctx, holdfast.KindLock, "x"); err != nil {
			t.Error(err)
		}
		var all []string
		for s, err := range adm.List(ctx, holdfast.KindLock, "") {
			all = append(all, fmt.Sprint(s.Name, " ", s.Holder.Owner, " ", err))
		}
		if fmt.Sprint(all) != "[x a <nil>]" {
			t.Error(all)
		}
		cancel()
	}
	var watches []func() (admin.Event, error, bool)
	for range 3 {
		next, stop := iter.Pull2(adm.Events(deadline(t), holdfast.KindLock, "x"))
		defer stop()
		watches = append(watches, next)
	}
	expect := func(want ...string) {
		t.Helper()
		for i, next := range watches {
			for _, w := range want {
				if ev, err, _ := next(); err != nil || fmt.Sprint(ev.What, " ", ev.Entry.Owner) != w {
					t.Fatalf("watch %d: %v of %q, %v; want %q", i, ev.What, ev.Entry.Owner, err, w)
				}
			}
		}
	}
	expect("queued a", "acquired a")
	mustSucceed(t, lk.Unlock(deadline(t)))
	expect("released a")
	links[1].Heal()
}
