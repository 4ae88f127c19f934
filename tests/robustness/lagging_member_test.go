//go:build linux

package robustness

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// A watch on a member that lags also tells what came before it was created. A waiter whose watch is on such a member
// does not take the end of an earlier entry, at the key that the holder uses again, for the end of the present one.
func TestWatchOnALaggingMemberLetsNoTwoHold(t *testing.T) {
	t.Parallel()
	const enough = 2 // rounds in which the member told what came before; a member that resumes may catch up first
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{Processes: true, DefaultTicks: true})
	leader, err := cluster.Leader(deadline(t))
	mustSucceed(t, err)
	var lagging, steady *etcdtest.Server // a follower, and another member than the leader
	for _, m := range cluster.Members() {
		switch {
		case m == leader:
		case lagging == nil:
			lagging = m
		default:
			steady = m
		}
	}
	ttl := session.Options{TTL: time.Minute}
	holder := open(t, steady.Client(t), ttl)
	cli, onLagging := steady.Client(t), lagging.Client(t)
	cli.Watcher = onLagging.Watcher
	waiter := open(t, cli, ttl)

	late := 0
	for range 40 {
		first := lock(t, holder, "x")
		mustSucceed(t, lagging.Pause())
		t.Cleanup(func() { _ = lagging.Resume() }) // also if the test fails
		unlock(t, first)
		lk := lock(t, holder, "x")
		if lk.Key() != first.Key() { // a request was slow, and a copy of it may still come: the round would show nothing
			mustSucceed(t, lagging.Resume())
			unlock(t, lk)
			continue
		}
		ended := make(chan bool, 1)
		go func() { ended <- tellsEnd(deadline(t), onLagging, lk.Key()) }() // ends by its deadline; received below
		next := make(chan *locker.Lock, 1)
		go func() { // ends by its deadline; received below
			lk, err := locker.NewMutex(waiter, "x").Lock(throughout(t))
			if err != nil {
				t.Error(err)
			}
			next <- lk
		}()
		steady.WaitForKeys(t, entriesOfLockX, 2)
		mustSucceed(t, lagging.Resume())
		await(t, "the member has caught up", func() bool { // its watch is perhaps created after a put
			_, err := cli.Put(deadline(t), behindLockX, "")
			mustSucceed(t, err)
			return len(ended) > 0
		})
		if <-ended {
			late++
		}
		for range 50 { // what the waiter sends when it was told goes before these
			_, err := cli.Get(deadline(t), behindLockX)
			mustSucceed(t, err)
		}
		if len(next) > 0 {
			t.Error("the waiter holds beside the holder")
		}
		unlock(t, lk)
		unlock(t, <-next)
		if late == enough {
			return
		}
	}
	t.Errorf("the test proves nothing: in %d rounds the member told what came before", late)
}

const behindLockX = "holdfast/lock/x/~" // after the entries of lock x, and none of them

// tellsEnd reports whether a watch of a key that exists tells of a deletion before it tells of a later put of
// behindLockX.
func tellsEnd(ctx context.Context, cli *clientv3.Client, key string) (ended bool) {
	for resp := range cli.Watch(clientv3.WithRequireLeader(ctx), key, clientv3.WithRange(behindLockX+"~")) {
		for _, event := range resp.Events {
			switch {
			case string(event.Kv.Key) == behindLockX:
				return ended
			case string(event.Kv.Key) == key && event.Type == clientv3.EventTypeDelete:
				ended = true
			}
		}
	}
	return false
}
