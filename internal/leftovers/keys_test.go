package leftovers

import (
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// An entry that the scanner has found has no ending of its own, and an ending names the lease.
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
	lost, next := &suspect{key: "a", lease: new(lease.Lease)}, &suspect{key: "b", lease: new(lease.Lease)}
	k.Register("a", lost.lease, lost)
	k.Register("b", next.lease, next)
	k.refuse(lost.lease)
	if of, others := k.of(lost.lease, true), k.of(next.lease, true); len(of) != 1 || of[0] != lost || others != nil {
		t.Errorf("refused are %v, and of the other lease %v", of, others)
	}
	k.Forget(lost.lease)
	if k.At("a") != nil || k.At("b") != next {
		t.Errorf("the keys are in use by %v and %v", k.At("a"), k.At("b"))
	}
}
