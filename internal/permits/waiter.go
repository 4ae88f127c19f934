package permits

import (
	"context"
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/reads"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// Waiter is what a permit that was put knows of the others and of the limit.
type Waiter struct {
	Of      *Limit
	Weight  int
	Created int64 // the create revision of its entry; set by Place

	Limit   layout.Limit // as it was read last
	Far     bool         // it waits behind an entry that waits, too; otherwise it is the first waiter
	Account              // of the first waiter
}

// A Read sends reads, together with one of the entry itself.
type Read func(ctx context.Context, ask txns.Ops) (txns.Reply, error)

// Place records the place of a permit, by what was seen to stand ahead of it when it was put, at a revision. It returns
// the entry that is ahead; nil if the permit holds. With delay, what went before is not known.
//
// Those behind judge by the limit at which the entry was put whether it holds or waits for a mark. If the limit has
// changed since, the entry waits, and puts its mark at once if there is room.
func (w *Waiter) Place(seen Seen, created int64, delay bool) (ahead *mvccpb.KeyValue) {
	w.Limit, w.Created, ahead = seen.Limit, created, seen.Youngest
	if Weights(seen.Ahead)+w.Weight <= w.Limit.Permits && w.Limit.Mod < created {
		ahead = nil
	}
	if w.Far = !seen.MayHold() && layout.MarkIn(ahead) == 0; !w.Far {
		w.Lead(created, delay)
		w.Begin(seen)
	}
	return ahead
}

// Lead makes the entry the first waiter, from a revision on. With delay, what went before is not known, and the lock
// delay has begun. A mark may be older than the entry. But only from the revision of the entry on does a read show all
// that are ahead of it, and what went before is none of its concern.
func (w *Waiter) Lead(from int64, delay bool) {
	w.Far, w.Account = false, AccountFrom(max(from, w.Created), delay)
}

// AheadWent records what stood ahead when the entry ahead of a far one had gone without a mark, as was seen at a
// revision. It reports whether the lock delay begins.
func (w *Waiter) AheadWent(seen Seen, at int64) (delays bool) {
	w.Limit = seen.Limit
	switch {
	case layout.MarkIn(seen.Youngest) != 0:
		// Its mark does not speak of those that have gone between the two. One may have held: there was room for it
		// when it was put, while the youngest had not asked yet.
		w.Lead(w.Created, false)
	case !seen.MayHold(): // it waits, so it will put a mark, or go
	default:
		w.Lead(at, true)
		w.Begin(seen)
		return true
	}
	return false
}

// TooHeavy reports whether the weight is above the limit.
func (w *Waiter) TooHeavy() bool { return w.Weight > w.Limit.Permits }

// Fits reports whether the weight fits into the limit, by what the first waiter has heard.
func (w *Waiter) Fits() bool { return w.All && w.Sum+w.Weight <= w.Limit.Permits }

// LookForRoom reads which permits stand ahead of the first waiter; Heard is the revision of that. What has gone since
// the last look, or since it became the first waiter, it has to judge. If that is compacted, what has gone until now
// cannot be known: LookForRoom reports whether the lock delay begins for that.
func (w *Waiter) LookForRoom(ctx context.Context, read Read) (delays bool, err error) {
	var ask txns.Ops
	limitKey := ask.Add(clientv3.OpGet(w.Of.scope.At.LimitKey()))
	now := ask.Add(w.Of.scope.OldestAheadAt(w.Created-1, 0, 0))
	before := len(ask)
	if !w.All {
		ask.Add(w.Of.scope.OldestAheadAt(w.Created-1, w.Heard, 0))
	}
	r, err := read(ctx, ask)
	compacted := !w.All && errors.Is(err, rpctypes.ErrCompacted)
	if compacted {
		r, err = read(ctx, ask[:before])
	}
	if err != nil {
		return false, err
	}
	limit, err := w.Of.Ensure(ctx, r.First(limitKey))
	if err != nil {
		return false, err
	}
	stood := w.Stand
	switch {
	case compacted:
		stood = nil
		w.Lead(r.Header.Revision, true)
	case !w.All:
		stood = r.Range(before).Kvs
	}
	w.Limit = limit
	w.Look(r.Range(now).Kvs, stood, r.Header.Revision)
	return compacted, nil
}

// HearRoom handles what a watch of the permits and of the limit tells the first waiter. again: it has to look.
func (w *Waiter) HearRoom(ctx context.Context, events []*clientv3.Event) (again bool, err error) {
	limitKey := w.Of.scope.At.LimitKey()
	for _, event := range events {
		isLimit := string(event.Kv.Key) == limitKey
		switch {
		case isLimit && event.Type == mvccpb.DELETE:
			return true, nil
		case isLimit && event.Kv.ModRevision <= w.Limit.Mod: // told late, and known
		case isLimit:
			limit, err := w.Of.Ensure(ctx, event.Kv)
			if err != nil {
				return false, err
			}
			w.Limit = limit
		default:
			w.Hear(event)
		}
		w.Heard = max(w.Heard, event.Kv.ModRevision)
	}
	return false, nil
}

// AnyEnded reports whether a permit that has gone went together with its session key, or whether that cannot be known.
// keyOf names the session key of a lease.
func (a *Account) AnyEnded(ctx context.Context, keyOf func(clientv3.LeaseID) string, read Read) (bool, error) {
	for some := range slices.Chunk(a.Gone, txns.MaxOps) {
		var ask txns.Ops
		for _, g := range some {
			ask.Add(reads.Stood(keyOf(g.Lease), g.At))
		}
		r, err := read(ctx, ask)
		if errors.Is(err, rpctypes.ErrCompacted) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		for i := range some {
			if r.Range(i).Count == 0 {
				return true, nil
			}
		}
	}
	return false, nil
}

// Leave returns the Txn by which a first waiter that gives up puts its mark: the entry behind it goes on from there. It
// returns false if the waiter does not know up to which revision it has judged. stands is true in a Txn while the entry
// has no mark, which putMark puts.
func (a *Account) Leave(stands clientv3.Cmp, putMark func(int64) clientv3.Op, delayRuns bool,
	keyOf func(clientv3.LeaseID) string,
) (t txns.Txn, ok bool) {
	served := a.ServedNow(delayRuns)
	if served == 0 {
		return txns.Txn{}, false
	}
	unmarked, known := []clientv3.Cmp{stands}, []clientv3.Op{putMark(served)}
	innocent, few := a.SessionsStand(keyOf)
	if !few || delayRuns {
		return txns.Txn{If: unmarked, Then: known}, true
	}
	return txns.Txn{
		If:   append(unmarked, innocent...),
		Then: []clientv3.Op{putMark(a.Heard)},
		Else: []clientv3.Op{clientv3.OpTxn(unmarked, known, nil)},
	}, true
}
