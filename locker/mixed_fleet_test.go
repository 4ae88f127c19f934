package locker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
)

// oldEntry puts an entry of lock x as versions did that had no session key, and
// returns what releases it.
func oldEntry(t *testing.T, srv *etcdfake.Server) (release func()) {
	t.Helper()
	cli := srv.Link().Client()
	lease, err := cli.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	key := fmt.Sprintf("holdfast/lock/x/@/%x-ABCDEFGHIJKLMNOP", int64(lease.ID))
	if _, err := cli.Put(t.Context(), key, "", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := cli.Delete(context.Background(), key); err != nil {
			t.Error(err)
		}
	}
}

// While processes of a version without session keys run beside newer ones, a
// newer waiter cannot tell their releases from revoked leases: each hand-over
// from an old holder to it costs the lock delay. Nothing else does.
func TestHandOverFromASessionWithoutASessionKeyCostsTheLockDelay(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		release := oldEntry(t, srv)
		waiter := lockLater(deadline(t), locker.NewMutex(start(t, srv).sess, "x"))
		queued(t, srv, "x", 2)
		handOver(t, waiter, release, lockDelay)
	})
}

func TestWaiterWithoutASessionKeyThatGivesUpCostsNoDelay(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		lk := mustLock(t, locker.NewMutex(start(t, srv).sess, "x"))
		giveUp := oldEntry(t, srv)
		waiter := lockLater(deadline(t), locker.NewMutex(start(t, srv).sess, "x"))
		queued(t, srv, "x", 3)
		giveUp()
		time.Sleep(time.Second) // the waiter has seen it
		handOver(t, waiter, func() {
			if err := lk.Unlock(deadline(t)); err != nil {
				t.Error(err)
			}
		}, 0)
	})
}

// handOver releases, and expects that the waiter holds when the lock delay is
// over: a moment later, when it has heard of the release and judged it.
func handOver(t *testing.T, waiter <-chan result, release func(), delay time.Duration) {
	t.Helper()
	time.Sleep(time.Second)
	release()
	released := time.Now()
	r := <-waiter
	if r.err != nil {
		t.Fatal(r.err)
	}
	if took := time.Since(released); took < delay || took > delay+4*oneWay {
		t.Errorf("held after %v, want %v and a moment", took, delay)
	}
}
