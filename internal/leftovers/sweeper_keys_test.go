package leftovers

import (
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// at returns what uses a key, or nil.
func (k *Keys) at(key string) KeyUser {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.inUse[key].entry
}

// A key that must not be used again has no ending, and an ending names the lease.
func TestOnlyEndingsOfThePresentLeaseAreKept(t *testing.T) {
	t.Parallel()
	present := new(lease.Lease)
	k := Keys{inUse: make(map[string]use), lease: present}
	used := func(l *lease.Lease, id string) {
		k.Register("x", l, &suspect{})
		k.Recycle("x", id)
	}
	used(present, "")
	used(new(lease.Lease), "of another lease")
	for i := range maxFree + 1 {
		used(present, fmt.Sprint(i))
	}
	if len(k.free) != maxFree || k.free[0] != "0" {
		t.Errorf("%d endings are kept, the first is %q", len(k.free), k.free[0])
	}
}

// A session has the entries of a lost lease beside those of the next one.
func TestLeaseIsRefusedAndForgottenAlone(t *testing.T) {
	t.Parallel()
	k := Keys{inUse: make(map[string]use)}
	lost, next := newSuspect(new(lease.Lease), "a"), newSuspect(new(lease.Lease), "b")
	k.Register("a", lost.Lease, lost)
	k.Register("b", next.Lease, next)
	k.refuse(lost.Lease)
	if of, others := k.Of(lost.Lease, true), k.Of(next.Lease, true); len(of) != 1 || of[0] != lost || others != nil {
		t.Errorf("refused are %v, and of the other lease %v", of, others)
	}
	k.Forget(lost.Lease)
	if k.at("a") != nil || k.at("b") != next {
		t.Errorf("the keys are in use by %v and %v", k.at("a"), k.at("b"))
	}
}
