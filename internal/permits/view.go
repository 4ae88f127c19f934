package permits

import (
	"cmp"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/internal/ahead"
	"github.com/holdfast-go/holdfast/internal/layout"
)

// MaxBatch is how many turns one Txn marks: etcd takes 128 operations, and counts those of the Txns in it.
const MaxBatch = 125

// View is what one read shows of a semaphore.
type View struct {
	Waiting []*mvccpb.KeyValue // the turns that wait, the oldest first

	live, lost int           // weights of permits and marked turns, and of those of which only the claim stands
	dead       []ahead.Claim // acquitted: of a turn that was not marked, which never held
}

// Read reads keys of a semaphore. All of them count that are not turns that wait, so for an entry, only older ones may
// be among them. A claim may be there only if the permit or the turn that it is of would be, too: it looks dead
// otherwise.
func Read(at layout.Queue, kvs ...*mvccpb.KeyValue) (v View) {
	stands := make(map[int64]bool, len(kvs)/2)
	for _, kv := range kvs {
		key := string(kv.Key)
		weight := layout.WeightOf(key)
		if at.IsClaim(key) || weight == 0 { // the limit has none
			continue
		}
		stands[kv.CreateRevision] = true
		if at.IsTurn(key) && kv.Version == 1 {
			v.Waiting = append(v.Waiting, kv)
		} else {
			v.live += weight
		}
	}
	for _, kv := range kvs {
		if key := string(kv.Key); at.IsClaim(key) && !stands[kv.CreateRevision] {
			entry := at.EntryOf(key)
			waited := at.IsTurn(entry) && kv.Version == 1
			if !waited {
				v.lost += layout.WeightOf(entry)
			}
			v.dead = append(v.dead, ahead.Claim{Key: key, Rev: kv.CreateRevision, Acquitted: waited})
		}
	}
	slices.SortFunc(v.Waiting, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
	return v
}

// Room returns what is left of a limit. without is the same without the dead claims.
func (v View) Room(limit int) (left, without int) {
	return limit - v.live - v.lost, limit - v.live
}

// inTheWay returns the dead claims that an entry which does not fit deletes, so that it may. It waits for those of
// permits only if there is room for it without them.
func (v View) inTheWay(weight, limit int) (dead []ahead.Claim) {
	_, without := v.Room(limit)
	for _, c := range v.dead {
		if c.Acquitted || weight <= without {
			dead = append(dead, c)
		}
	}
	return dead
}

// Next is what an entry does next. The zero Next says nothing: the entry looks.
type Next struct {
	Hold     bool
	TooHeavy bool               // it never fits into the limit
	Batch    []*mvccpb.KeyValue // it marks these turns
	Dead     []ahead.Claim      // it waits for the delays of these claims, and deletes them
	Wait     bool               // it waits for the turn ahead or, at the front, for permits to go. A permit has no room
	Behind   *mvccpb.KeyValue   // the turn ahead, which waits
}

// Turn decides for a turn that waits, created at rev. If it is not the front, it marks the front all the same, if that
// fits: a front that hangs holds up no one then.
func (v View) Turn(rev int64, limit layout.Limit) (n Next) {
	i := slices.IndexFunc(v.Waiting, func(kv *mvccpb.KeyValue) bool { return kv.CreateRevision == rev })
	if i < 0 {
		return n // it was marked meanwhile
	}
	left, _ := v.Room(limit.Permits)
	n.Batch = fitting(v.Waiting, left)
	if i > 0 {
		n.Behind = v.Waiting[i-1]
	} else if len(n.Batch) == 0 {
		weight := layout.WeightOf(string(v.Waiting[0].Key))
		n.TooHeavy, n.Dead = weight > limit.Permits, v.inTheWay(weight, limit.Permits)
	}
	n.Wait = !n.TooHeavy && len(n.Batch)+len(n.Dead) == 0
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

// Permit decides for a permit created at rev, by what stands ahead of it. Nothing joins ahead of it, so it fitted if it
// fits now, unless the limit was changed since:
//
//	rev 10  A puts a permit, and holds. The limit is 1
//	rev 12  B puts a permit, which does not fit, and the reply is lost
//	rev 14  the limit is 3: C is admitted
//	rev 16  the limit is 2: A and B alone would fit
func (v View) Permit(rev int64, weight int, limit layout.Limit) (n Next) {
	if left, _ := v.Room(limit.Permits); limit.Mod >= rev {
		n.Wait = true
	} else if n.Hold = weight <= left; !n.Hold {
		n.Dead = v.inTheWay(weight, limit.Permits)
		n.Wait = len(n.Dead) == 0
	}
	return n
}
