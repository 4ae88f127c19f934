package ahead

import (
	"cmp"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/internal/layout"
)

// MaxClaims is how many claims one look reads: some 1.5 MB of keys. If there are more, another look follows.
const MaxClaims = 1 << 14

// A Claim is one that conflicts, stands ahead, and is dead: its entry has gone, and it has not. A claim that is dead
// once is dead for good, because an entry that is deleted never comes back at its create revision.
type Claim struct {
	Key string
	Rev int64 // the create revision, of the claim and of its entry

	// Acquitted: its entry never held. Something that excludes it stood ahead of it, and stands yet:
	//
	//	rev 10  A puts, and holds
	//	rev 12  B puts, and waits for A
	//	rev 15  B's lease expires. A still stands, so B never held: its claim costs no delay
	Acquitted bool
}

// Dead returns the dead claims out of a reply to ClaimsAhead, in the order of their creation. entry is the youngest
// conflicting entry ahead, as the same Txn has read it; nil: there is none. Claims younger than that are dead.
func (s Scope) Dead(entry *mvccpb.KeyValue, claims []*mvccpb.KeyValue) (dead []Claim) {
	if len(claims) == 0 {
		return nil
	}
	byAge := func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) }
	claims = slices.SortedFunc(slices.Values(claims), byAge)
	var any, writer int64 // create revisions of the oldest that stands, and of the oldest that is no reader's; 0: none
	stands := func(key string, rev int64) {
		if any == 0 || rev < any {
			any = rev
		}
		if !layout.IsReader(key) && (writer == 0 || rev < writer) {
			writer = rev
		}
	}
	if entry != nil {
		stands(string(entry.Key), entry.CreateRevision)
	}
	for _, kv := range claims {
		key, rev := s.At.EntryOf(string(kv.Key)), kv.CreateRevision
		if entry == nil || rev > entry.CreateRevision {
			// Two readers do not exclude one another. The two entries of a Downgradable have one revision, and that of the
			// reader must not acquit the writer, which held: so only what is older does.
			older := any
			if layout.IsReader(key) {
				older = writer
			}
			dead = append(dead, Claim{Key: string(kv.Key), Rev: rev, Acquitted: older != 0 && older < rev})
		}
		stands(key, rev)
	}
	return dead
}
