package queue

import (
	"testing"

	"github.com/holdfast-go/holdfast/etcdfake"
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
