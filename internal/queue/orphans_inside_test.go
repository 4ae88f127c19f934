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
		orphan := &entry{q: q, of: &attempt{lease: h.Lease()}}
		if !q.shared.keys.register(orphan, h.Key()) {
			t.Fatal("the key of a released entry is in use")
		}
		next := mustAcquire(t, q)
		if next.Key() == orphan.key {
			t.Error("it was used again")
		}
		if q.shared.keys.register(&entry{q: q, of: &attempt{lease: h.Lease()}}, next.Key()) {
			t.Error("the key of a hold was given to a orphan")
		}
		q.shared.keys.unregister(orphan)
	})
}
