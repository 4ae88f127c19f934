package permits

import (
	"cmp"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/reads"
)

// MaxBatch is how many turns one Txn marks: etcd takes 128 operations, and counts those of the Txns in it.
const MaxBatch = 125

// View is what one read shows of a semaphore.
type View struct {
	Waiting []*mvccpb.KeyValue // the turns that wait, the oldest first

	taken  []counted // permits and marked turns
	claims []claim   // the dead ones
}

// counted is a weight, and the create revision of what has it.
type counted struct {
	rev    int64
	weight int
}

type claim struct {
	counted
	key    string
	permit bool // of a permit, or of a turn that was marked: its holder may not know yet that it is gone
}

// Read reads keys of a semaphore. No claim may be among them that is younger than a permit or a turn that was left out:
// its own would look gone.
func Read(at layout.Queue, kvs ...*mvccpb.KeyValue) (v View) {
	var claims []*mvccpb.KeyValue
	stands := make(map[int64]bool, len(kvs)/2)
	for _, kv := range kvs {
		switch key := string(kv.Key); {
		case at.IsClaim(key):
			claims = append(claims, kv)
		case layout.WeightOf(key) == 0: // the limit
		case at.IsTurn(key) && kv.Version == 1:
			stands[kv.CreateRevision] = true
			v.Waiting = append(v.Waiting, kv)
		default:
			stands[kv.CreateRevision] = true
			v.taken = append(v.taken, counted{kv.CreateRevision, layout.WeightOf(key)})
		}
	}
	for _, kv := range claims {
		if rev := kv.CreateRevision; !stands[rev] {
			entry := at.EntryOf(string(kv.Key))
			permit := !at.IsTurn(entry) || kv.Version != 1
			v.claims = append(v.claims, claim{counted{rev, layout.WeightOf(entry)}, string(kv.Key), permit})
		}
	}
	slices.SortFunc(v.Waiting, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
	return v
}

// Room returns what is left of a limit beside all that was put before a revision. without is the same without the dead
// claims.
func (v View) Room(limit int, before int64) (left, without int) {
	for _, c := range v.taken {
		if c.rev < before {
			limit -= c.weight
		}
	}
	left = limit
	for _, c := range v.claims {
		if c.permit && c.rev < before {
			left -= c.weight
		}
	}
	return left, limit
}

// Dead returns the dead claims put before a revision, to be waited for and deleted. Those of turns that were never
// marked cost no delay.
func (v View) Dead(before int64) (dead []reads.Claim) {
	for _, c := range v.claims {
		if c.rev < before {
			dead = append(dead, reads.Claim{Key: c.key, Rev: c.rev, Acquitted: !c.permit})
		}
	}
	return dead
}

// Next is what a look tells an entry to do. Nothing of it: it waits for permits to go, or the limit to change.
type Next struct {
	Hold     bool
	TooHeavy bool               // it never fits into the limit
	Behind   *mvccpb.KeyValue   // the turn ahead, which waits
	Batch    []*mvccpb.KeyValue // turns to be marked
	Dead     []reads.Claim      // to be waited for and deleted
}

// Turn decides for a turn that waits, created at rev. If it is not the front, the front may be marked all the same: one
// that hangs holds up no one then.
func (v View) Turn(rev int64, limit layout.Limit) (n Next) {
	if len(v.Waiting) == 0 {
		return n
	}
	front := v.Waiting[0]
	i := slices.IndexFunc(v.Waiting, func(kv *mvccpb.KeyValue) bool { return kv.CreateRevision == rev })
	if i > 0 {
		n.Behind = v.Waiting[i-1]
	}
	left, without := v.Room(limit.Permits, front.CreateRevision)
	n.Batch = fitting(v.Waiting, left)
	switch own := layout.WeightOf(string(front.Key)); {
	case i > 0:
	case own > limit.Permits:
		n.TooHeavy = true
	case len(n.Batch) == 0 && own <= without:
		n.Dead = v.Dead(rev)
	default:
		n.Dead = slices.DeleteFunc(v.Dead(rev), func(c reads.Claim) bool { return !c.Acquitted })
	}
	return n
}

// fitting returns the first turns that fit into what is left, as many as one Txn marks.
func fitting(waiting []*mvccpb.KeyValue, left int) []*mvccpb.KeyValue {
	for i, kv := range waiting {
		if left -= layout.WeightOf(string(kv.Key)); left < 0 || i == MaxBatch {
			return waiting[:i]
		}
	}
	return waiting
}

// Permit decides for a permit created at rev, by what stands ahead of it now. Nothing joins ahead of it, so it fitted
// if it fits now, unless the limit was changed since:
//
//	rev 10  A puts a permit, and holds. The limit is 1
//	rev 12  B puts a permit, which does not fit, and the reply is lost
//	rev 14  the limit is 3: C is admitted
//	rev 16  the limit is 2: A and B alone would fit
func (v View) Permit(rev int64, weight int, limit layout.Limit) (n Next) {
	left, without := v.Room(limit.Permits, rev)
	switch unchanged := limit.Mod < rev; {
	case weight <= left && unchanged:
		n.Hold = true
	case weight <= without && unchanged:
		n.Dead = v.Dead(rev)
	}
	return n
}
