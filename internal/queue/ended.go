package queue

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

// A session whose key is gone was closed, or its lease was revoked or has expired. If all its entries ahead had gone
// before the key, they had left in order, and no waiter behind has to delay. So the waiter finds the last revision at
// which the key stood. Until then the lease was alive. Each round of the search reads the key at several revisions.
//
// A session that had ended a lock delay ago, with all its entries ahead, has been told by now, if there was a quorum:
// see past. So a holder that crashes costs each of those behind it a quarter of a lock delay.
//
// The search takes no longer than the lock delay, which runs meanwhile. What it does not find costs the delay.

const (
	maxEnded = 64 // sessions that are looked for; with more, one is presumed to have held when its lease ended
	probes   = 15 // reads of each session key in one Txn: after five rounds, a million revisions are searched
)

// inquest finds out how sessions have ended that had entries ahead.
type inquest struct {
	*wait
	past int64 // the store had this revision a lock delay ago
}

func inquestOf(w *wait) inquest {
	return inquest{w, w.e.of.past.known(time.Now(), w.e.q.shared.lockDelay)}
}

// ending is what is known of when the session key of a lease went.
type ending struct {
	lease clientv3.LeaseID
	stood int64 // it stood at this revision; 0: at none that etcd still knows
	gone  int64 // and not at this later one
}

// open reports whether it is still to be found when the key went.
func (n ending) open() bool { return n.stood > 0 && n.gone-n.stood > 1 }

// finding is what an inquest finds of sessions that have ended, from the best to the worst.
type finding int

const (
	innocent finding = iota // none held when its lease ended
	longTold                // one may have, and has been told: that is longer ago than a lock delay
	mayHold                 // one may believe that it holds
)

// judge records that the queue was free at a revision, at which the session keys of some leases were gone. The
// lock delay begins, unless none of these can have held when its lease ended. With delays it begins in any case.
//
// A session that ended long ago costs a quarter of the delay. There may have been no quorum since then until just now,
// and with it the former holder is told.
func (w inquest) judge(ctx context.Context, at int64, ended []clientv3.LeaseID, delays bool) error {
	seen, before := w.seen, w.delay
	if delays || len(ended) == 0 || len(ended) > maxEnded {
		w.setAhead(nil, at, delays || len(ended) > 0)
		return nil
	}
	w.noteAhead(nil, at, true)
	ctx, cancel := context.WithTimeout(ctx, w.delayLeft())
	defer cancel()
	found, err := w.search(ctx, ended, at, seen)
	delays = err != nil || found == mayHold
	w.sayJudged(delays, found, err)
	if errors.Is(err, errEntryGone) {
		return err
	}
	if delays {
		return nil // the lock delay goes on
	}
	if quarter := delayOf(w.e.q.shared.lockDelay / 4); found == longTold && before.until.Before(quarter.until) {
		before = quarter
	}
	w.setDelay(before)
	return nil
}

// search finds out whether one of some leases had an entry ahead that held when the lease ended. Their session keys
// were gone at a revision, and the entry ahead stood at an earlier one, seen.
func (w inquest) search(ctx context.Context, leases []clientv3.LeaseID, gone, seen int64) (finding, error) {
	endings, err := w.endings(ctx, leases, gone, seen)
	if err != nil {
		return mayHold, err
	}
	for slices.ContainsFunc(endings, ending.open) {
		if endings, err = w.narrow(ctx, endings, nil); err != nil {
			return mayHold, err
		}
	}
	return w.weigh(ctx, endings)
}

// endings begins the search for when session keys went, at the earliest revision that etcd still knows of those at
// which they may have stood. If one stood at none of them, it returns ErrCompacted.
func (w inquest) endings(ctx context.Context, leases []clientv3.LeaseID, gone, seen int64) ([]ending, error) {
	from := slices.DeleteFunc([]int64{w.others.Since, w.e.rev, seen}, func(at int64) bool { return at == 0 || at >= gone })
	slices.Sort(from)
	for ; len(from) > 0; from = from[1:] {
		begin := make([]ending, len(leases))
		for i, lease := range leases {
			begin[i] = ending{lease, from[0], gone}
		}
		if found, err := w.narrow(ctx, begin, from); !errors.Is(err, rpctypes.ErrCompacted) {
			return found, err
		}
	}
	return nil, rpctypes.ErrCompacted
}

// narrow reads each session key at revisions between those that are known, and at some more.
func (w inquest) narrow(ctx context.Context, endings []ending, more []int64) ([]ending, error) {
	at, groups := make([][]int64, len(endings)), make([][]clientv3.Op, len(endings))
	for i, n := range endings {
		if at[i] = slices.Clone(more); n.open() {
			at[i] = append(at[i], between(n.stood, n.gone)...)
		}
		slices.Sort(at[i])
		for _, revision := range at[i] {
			groups[i] = append(groups[i], reads.Stood(w.e.q.host.SessionKey(n.lease), revision))
		}
	}
	var ask txns.Ops
	keys := ask.AddGroups(groups)
	r, err := w.read(ctx, ask)
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
		if n.stood == 0 && n.gone > w.past {
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

// weigh is search where it is known when the session keys stood last.
func (w inquest) weigh(ctx context.Context, endings []ending) (finding, error) {
	var ask txns.Ops
	var groups [][]clientv3.Op
	for _, n := range endings {
		groups = append(groups, w.e.q.OldestOf(n.lease, w.e.rev-1, cmp.Or(n.stood, w.past)))
	}
	oldest := ask.AddGroups(groups)
	r, err := w.read(ctx, ask)
	if err != nil {
		return mayHold, err
	}
	found := innocent
	for i, n := range endings {
		one, err := w.weighOne(ctx, n, oldest.Of(r, i))
		if found = max(found, one); err != nil || found == mayHold {
			return mayHold, err
		}
	}
	return found, nil
}

// weighOne is weigh for a lease, whose oldest entries stood at the last revision at which its session key did; if that
// is not known, then at the one that the store had a lock delay ago.
func (w inquest) weighOne(ctx context.Context, n ending, stood txns.Reply) (finding, error) {
	if n.stood > 0 {
		if firstIn(stood) == nil {
			return innocent, nil // all had left before
		}
		if waited, err := w.waitedUntil(ctx, n, stood); err != nil || waited {
			return innocent, err
		}
		if n.gone > w.past {
			return mayHold, nil
		}
		var ask txns.Ops
		oldest := ask.AddGroups([][]clientv3.Op{w.e.q.OldestOf(n.lease, w.e.rev-1, w.past)})
		r, err := w.read(ctx, ask)
		if err != nil {
			return mayHold, err
		}
		stood = oldest.Of(r, 0)
	}
	if firstIn(stood) != nil {
		return mayHold, nil // the key was deleted by hand, or the entry stood on another lease: see waitedUntil
	}
	return longTold, nil
}

// waitedUntil reports whether the oldest entries of a lease, which stood at the last revision at which its session key
// did, went with it, and never held: an older entry that each waited for was there even then.
func (w inquest) waitedUntil(ctx context.Context, n ending, stood txns.Reply) (bool, error) {
	q := w.e.q
	var ask txns.Ops
	left := ask.AddGroups([][]clientv3.Op{q.OldestOf(n.lease, w.e.rev-1, n.gone)})
	writer := ask.Add(q.OldestWriter(n.gone))
	oldest := ask.Add(q.OldestConflicting(n.gone))
	r, err := w.read(ctx, ask)
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
