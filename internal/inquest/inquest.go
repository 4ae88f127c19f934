// Package inquest finds out how sessions have ended whose entries an entry had to wait for: whether one may have held
// when its lease ended. It is called when the queue is free and some of their session keys are gone.
//
// A session whose key is gone was closed, or its lease was revoked or has expired. If all its entries ahead had gone
// before the key, they had left in order, and no waiter behind has to delay. So the waiter finds the last revision at
// which the key stood. Until then the lease was alive. Each round of the search reads the key at several revisions.
//
// A session that had ended a lock delay ago, with all its entries ahead, has been told by now, if there was a quorum.
// So a holder that crashes costs each of those behind it a quarter of a lock delay.
package inquest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/reads"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// probes is how often a round reads each session key, in one Txn: after five rounds, a million revisions are searched.
const probes = 15

// Inquest is made for the entry that has waited.
type Inquest struct {
	Scope   reads.Scope
	Created int64 // the create revision of the entry
	Past    int64 // the store had this revision a lock delay ago; 0: none is known

	KeyOf func(clientv3.LeaseID) string // the session key of a lease
	// Read sends reads as one Txn. It returns an error if the entry does not stand.
	Read func(ctx context.Context, ask txns.Ops) (txns.Reply, error)
}

// Finding is what an Inquest finds of some sessions, from the best to the worst.
type Finding int

const (
	Innocent Finding = iota // none held when its lease ended
	LongTold                // one may have, and has been told: that is longer ago than a lock delay
	MayHold                 // one may believe that it holds
)

// ending is what is known of when the session key of a lease went.
type ending struct {
	lease clientv3.LeaseID
	stood int64 // it stood at this revision; 0: at none that etcd still knows
	gone  int64 // and not at this later one
}

// open reports whether it is still to be found when the key went.
func (n ending) open() bool { return n.stood > 0 && n.gone-n.stood > 1 }

// Search finds out whether one of some leases had an entry ahead that held when the lease ended. Their session keys
// were gone at a revision, and may have stood at some earlier ones, of which 0 is none. The error is that of Read, or
// ErrCompacted if etcd does not know any more how they went; then the finding is MayHold.
func (q Inquest) Search(
	ctx context.Context, leases []clientv3.LeaseID, stood []int64, gone int64,
) (Finding, error) {
	endings, err := q.begin(ctx, leases, stood, gone)
	if err != nil {
		return MayHold, err
	}
	for slices.ContainsFunc(endings, ending.open) {
		if endings, err = q.narrow(ctx, endings, nil); err != nil {
			return MayHold, err
		}
	}
	return q.weigh(ctx, endings)
}

// begin begins the search at the earliest revision that etcd still knows of those at which the session keys may have
// stood. If one stood at none of them, it returns ErrCompacted.
func (q Inquest) begin(
	ctx context.Context, leases []clientv3.LeaseID, stood []int64, gone int64,
) ([]ending, error) {
	from := slices.DeleteFunc(slices.Clone(stood), func(at int64) bool { return at == 0 || at >= gone })
	slices.Sort(from)
	for ; len(from) > 0; from = from[1:] {
		endings := make([]ending, len(leases))
		for i, lease := range leases {
			endings[i] = ending{lease, from[0], gone}
		}
		if found, err := q.narrow(ctx, endings, from); !errors.Is(err, rpctypes.ErrCompacted) {
			return found, err
		}
	}
	return nil, rpctypes.ErrCompacted
}

// narrow reads each session key at revisions between those that are known, and at some more.
func (q Inquest) narrow(ctx context.Context, endings []ending, more []int64) ([]ending, error) {
	at, groups := make([][]int64, len(endings)), make([][]clientv3.Op, len(endings))
	for i, n := range endings {
		if at[i] = slices.Clone(more); n.open() {
			at[i] = append(at[i], between(n.stood, n.gone)...)
		}
		slices.Sort(at[i])
		for _, revision := range at[i] {
			groups[i] = append(groups[i], reads.Stood(q.KeyOf(n.lease), revision))
		}
	}
	var ask txns.Ops
	keys := ask.AddGroups(groups)
	r, err := q.Read(ctx, ask)
	if err != nil {
		return nil, err
	}
	narrowed := slices.Clone(endings)
	for i := range narrowed {
		n := &narrowed[i]
		if more != nil {
			n.stood = 0 // nothing is known yet
		}
		for k, revision := range slices.Backward(at[i]) {
			if keys.Of(r, i).Range(k).Count > 0 {
				n.stood = revision
				break
			}
			n.gone = revision
		}
		if n.stood == 0 && n.gone > q.Past {
			return nil, rpctypes.ErrCompacted
		}
	}
	return narrowed, nil
}

// between returns at most so many revisions as a session key is read at in a round, evenly between two others.
func between(from, end int64) (at []int64) {
	step := max(1, (end-from+probes)/(probes+1))
	for revision := from + step; revision < end; revision += step {
		at = append(at, revision)
	}
	return at
}

// weigh is Search where it is known when the session keys stood last.
func (q Inquest) weigh(ctx context.Context, endings []ending) (Finding, error) {
	var ask txns.Ops
	var groups [][]clientv3.Op
	for _, n := range endings {
		groups = append(groups, q.Scope.OldestOf(n.lease, q.Created-1, cmp.Or(n.stood, q.Past)))
	}
	oldest := ask.AddGroups(groups)
	r, err := q.Read(ctx, ask)
	if err != nil {
		return MayHold, err
	}
	found := Innocent
	for i, n := range endings {
		one, err := q.weighOne(ctx, n, oldest.Of(r, i))
		if found = max(found, one); err != nil || found == MayHold {
			return MayHold, err
		}
	}
	return found, nil
}

// weighOne is weigh for a lease, whose oldest entries stood at the last revision at which its session key did; if that
// is not known, then at the one that the store had a lock delay ago.
func (q Inquest) weighOne(ctx context.Context, n ending, stood txns.Reply) (Finding, error) {
	if n.stood > 0 {
		if firstIn(stood) == nil {
			return Innocent, nil // all had left before
		}
		if waited, err := q.waitedUntil(ctx, n, stood); err != nil || waited {
			return Innocent, err
		}
		if n.gone > q.Past {
			return MayHold, nil
		}
		var ask txns.Ops
		oldest := ask.AddGroups([][]clientv3.Op{q.Scope.OldestOf(n.lease, q.Created-1, q.Past)})
		r, err := q.Read(ctx, ask)
		if err != nil {
			return MayHold, err
		}
		stood = oldest.Of(r, 0)
	}
	if firstIn(stood) != nil {
		return MayHold, nil // the key was deleted by hand, or the entry stood on another lease: see waitedUntil
	}
	return LongTold, nil
}

// waitedUntil reports whether the oldest entries of a lease, which stood at the last revision at which its session key
// did, went with it, and never held: an older entry that each waited for was there even then.
func (q Inquest) waitedUntil(ctx context.Context, n ending, stood txns.Reply) (bool, error) {
	var ask txns.Ops
	left := ask.AddGroups([][]clientv3.Op{q.Scope.OldestOf(n.lease, q.Created-1, n.gone)})
	writer := ask.Add(q.Scope.OldestWriter(n.gone))
	oldest := ask.Add(q.Scope.OldestConflicting(n.gone))
	r, err := q.Read(ctx, ask)
	if err != nil {
		return false, err
	}
	if firstIn(left.Of(r, 0)) != nil {
		return false, nil // the key was deleted by hand, or the entry stood on another lease
	}
	for i, ahead := range []*mvccpb.KeyValue{r.First(oldest), r.First(writer)} { // of a writer, of a reader
		if i == len(stood.Responses) || stood.First(i) == nil {
			continue
		}
		if ahead == nil || ahead.CreateRevision >= stood.First(i).CreateRevision {
			return false, nil
		}
	}
	return true, nil
}

// firstIn returns the first key that any operation of a Txn has read, or nil.
func firstIn(r txns.Reply) *mvccpb.KeyValue {
	for i := range r.Responses {
		if kv := r.First(i); kv != nil {
			return kv
		}
	}
	return nil
}

// Past is which revision the store had a lock delay ago, as far as an attempt has heard from replies and its watches.
type Past struct {
	revision int64 // 0: not known
	later    int64 // heard since
	at       time.Time
}

// Hear records that the store has a revision now.
func (p *Past) Hear(revision int64, now time.Time, lockDelay time.Duration) {
	if now.Sub(p.at) >= lockDelay { // or nothing was heard
		*p = Past{p.later, revision, now}
	}
}

// Known returns a revision that the store had a lock delay ago; 0: none is known.
func (p *Past) Known(now time.Time, lockDelay time.Duration) int64 {
	if now.Sub(p.at) >= lockDelay {
		return p.later
	}
	return p.revision
}
