// Package shard_test tests package shard against one member of a real etcd.
package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/shard"
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
)

const shards = 8

// start runs a member until leave is called. Its functions write under a fence.
func start(t *testing.T, srv *etcdtest.Server, name string) (sess *session.Session, leave func()) {
	sess = testkit.Open(t, srv.Client(t), session.Options{TTL: time.Minute, LockDelay: time.Second})
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { // joined by leave
		orders := shard.New(sess, "orders", shards).With(shard.Options{
			Member: name, Value: "at " + name, OnError: func(_ int, err error) {
				if !errors.Is(err, fencing.ErrStale) { // the lease is revoked while the function begins
					t.Error(err)
				}
			},
		})
		err := orders.Run(ctx, func(ctx context.Context, s *shard.Shard) error {
			w := etcdfence.NewWriter(s)
			key := fmt.Sprintf("data/%d", s.Index())
			if _, err := w.Put(ctx, key, name); err != nil {
				return err
			}
			<-ctx.Done()
			if _, err := w.Put(context.WithoutCancel(ctx), key, "left by "+name); err != nil &&
				!errors.Is(err, holdfast.ErrLost) && !errors.Is(err, fencing.ErrStale) {
				t.Errorf("shard %d, while its function returns: %v", s.Index(), err)
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Run of %s: %v", name, err)
		}
	})
	leave = sync.OnceFunc(func() { cancel(); done.Wait() })
	t.Cleanup(leave)
	return sess, leave
}

// await waits until these members own all shards, evenly, and none under the lease that is gone, as a reader sees them.
func await(t *testing.T, owners <-chan shard.Owners, what string, gone clientv3.LeaseID, names ...string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case now := <-owners:
			loads, owned := make(map[string]int), 0
			for i := range now.Owners {
				if o := now.Owner(i); o.Value == "at "+o.Member && o.Lease != gone {
					loads[o.Member]++
					owned++
				}
			}
			if !slices.Equal(slices.Sorted(maps.Keys(loads)), names) {
				continue
			}
			all := slices.Collect(maps.Values(loads))
			if len(names) == 0 || owned == shards && slices.Max(all)-slices.Min(all) <= 1 {
				return
			}
		case <-deadline:
			t.Fatalf("%s: the shards are not owned by %q", what, names)
		}
	}
}

func TestShardsAreSharedOnARealEtcd(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	watching, stop := context.WithCancel(testkit.Deadline(t))
	owners := make(chan shard.Owners, 10_000)
	var watch sync.WaitGroup
	watch.Go(func() { // joined below
		for now, err := range shard.NewReader(cli, "orders").Watch(watching) {
			if err != nil {
				return
			}
			owners <- now
		}
	})
	_, leaveA := start(t, srv, "a")
	await(t, owners, "alone", 0, "a")
	sessB, leaveB := start(t, srv, "b")
	_, leaveC := start(t, srv, "c")
	await(t, owners, "three", 0, "a", "b", "c")

	listed := 0
	for s, err := range admin.New(cli, admin.Options{}).List(testkit.Deadline(t), holdfast.KindShard, "orders/") {
		if err != nil {
			t.Fatal(err)
		}
		if listed++; s.Holder.Value != "at "+s.Holder.Owner {
			t.Errorf("%+v", s)
		}
	}
	if listed != shards {
		t.Errorf("admin lists %d shards", listed)
	}

	leaveA()
	await(t, owners, "one has left", 0, "b", "c")
	revoked := sessB.Lease()
	srv.Revoke(t, revoked)
	await(t, owners, "b is back", revoked, "b", "c")
	leaveB()
	leaveC()
	await(t, owners, "all have left", 0)
	stop()
	watch.Wait()
	for _, prefix := range []string{"holdfast/shard/", "holdfast/member/"} {
		resp, err := cli.Get(testkit.Deadline(t), prefix, clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range resp.Kvs {
			if string(kv.Key) != "holdfast/shard/orders/@count" {
				t.Errorf("left: %s", kv.Key)
			}
		}
	}
}
