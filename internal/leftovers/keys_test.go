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
	k.Recycle(&suspect{lease: present, key: "found"}, "")
	k.Recycle(&suspect{lease: new(lease.Lease)}, "of another lease")
	for i := range maxFree + 1 {
		k.Recycle(&suspect{lease: present}, fmt.Sprint(i))
	}
	if len(k.free) != maxFree || k.free[0] != "0" {
		t.Errorf("%d endings are kept, the first is %q", len(k.free), k.free[0])
	}
}
