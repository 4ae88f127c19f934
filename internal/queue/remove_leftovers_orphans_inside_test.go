package queue

import (
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// The key of an orphan is not used for another entry.
func TestKeyOfAnOrphanIsNotUsedAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		q := p.queue("x")
		h := mustAcquire(t, q)
		mustHandOff(t, h)
		orphan := q.shared.orphan(q.At, h.Key, h.Lease)
		if !q.shared.keys.Register(h.Key, h.Lease, orphan) {
			t.Fatal("the key of a released entry is in use")
		}
		next := mustAcquire(t, q)
		if next.Key == orphan.Key {
			t.Error("it was used again")
		}
		if q.shared.keys.Register(next.Key, h.Lease, q.shared.orphan(q.At, next.Key, h.Lease)) {
			t.Error("the key of a hold was given to an orphan")
		}
		q.shared.keys.Unregister(h.Key)
	})
}

// The scanner may claim the key of an entry that the sweeper has just found. It has the entry removed later.
func TestEntryIsNotRemovedByTheSweeperAndTheScannerAtOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h := mustAcquire(t, p.queue("x"))
		keys := h.Queue.shared.keys
		keys.Unregister(h.Key)
		orphan := h.Queue.shared.orphan(h.Queue.At, h.Key, h.Lease)
		if !keys.Register(h.Key, h.Lease, orphan) {
			t.Fatal("the key is in use")
		}
		h.removeFound(&mvccpb.KeyValue{Key: []byte(h.Key), CreateRevision: h.Created})
		time.Sleep(kit.Prompt)
		if n := p.Counts()["remove"]; n != 0 || keys.InUse() != 1 || keys.Register(h.Key, h.Lease, h) {
			t.Errorf("%d removals were sent, or the key is no more the orphan's", n)
		}
		keys.Unregister(h.Key)
		mustHandOff(t, h)
	})
}
