package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// A reader waits for the writers ahead of it, and a writer for all that is ahead. So
// several readers may hold at a time. A writer watches the youngest entry ahead, and
// how that one goes says nothing of the readers that went before it: one of them may
// have been revoked, and not be told yet. So a writer remembers the sessions of the
// readers that stood ahead when it queued, and holds at once only if none may have ended while it held.
//
// A reader remembers the writers ahead in the same way. A writer that gives up may leave
// while the entry ahead of it stands. If that is a reader, it may be one that waits for
// the lock delay after a revoked writer, and it does not hold up the reader behind.

// othersAhead are the sessions of entries that stood ahead: of an entry that remembers them, those of the other mode.
type othersAhead struct {
	known    bool               // those ahead of this entry are among them
	sessions []clientv3.LeaseID // their leases in order, each once, at most maxRemembered
	since    int64              // the revision at which the first of them stood
	unknown  bool               // there were more, or etcd no longer knows them
}

// add adds entries that stood ahead at a revision. With unknown, etcd no longer knows which did.
func (r *othersAhead) add(q *Queue, entries []*mvccpb.KeyValue, at int64, unknown bool) {
	*r = r.with(q, entries)
	r.known, r.since, r.unknown = true, cmp.Or(r.since, at), r.unknown || unknown
}

// with returns r with the sessions of further entries.
func (r othersAhead) with(q *Queue, entries []*mvccpb.KeyValue) othersAhead {
	r.sessions = slices.Clone(r.sessions)
	for _, kv := range entries {
		if lease, ours := layout.LeaseOf(string(kv.Key)); ours {
			r.sessions = append(r.sessions, lease)
		}
	}
	slices.Sort(r.sessions)
	r.sessions = slices.Clip(slices.Compact(r.sessions))
	if len(entries) > maxRemembered || len(r.sessions) > maxRemembered {
		r.sessions, r.unknown = nil, true
	}
	return r
}

// ask adds reads of whether each session key stood at a revision; 0: now. They are inside other Txns, of which each has
// as many operations as etcd allows.
func (r othersAhead) ask(q *Queue, ask *txns.Ops, at int64) (first int) {
	first = len(*ask)
	for sessions := range slices.Chunk(r.sessions, maxOps) {
		reads := make([]clientv3.Op, len(sessions))
		for i, lease := range sessions {
			reads[i] = counts(q.host.SessionKey(lease), at)
		}
		ask.Add(clientv3.OpTxn(nil, reads, nil))
	}
	return first
}

// absent returns the leases whose session keys the reads of ask have not found.
func (r othersAhead) absent(reply txns.Reply, first int) (leases []clientv3.LeaseID) {
	for i, lease := range r.sessions {
		if reply.Inner(first+i/maxOps).Range(i%maxOps).Count == 0 {
			leases = append(leases, lease)
		}
	}
	return leases
}

// onlyOneAhead reports whether the entry ahead is the only one that has ever stood
// ahead, so that the way it goes decides alone.
func (w *wait) onlyOneAhead() bool {
	return w.ahead != nil && w.position == 1 && len(w.others.sessions) == 0 && !w.others.unknown
}

// mustLearnOthers reports whether entries of the other mode may be ahead that the entry does not
// remember.
func (w *wait) mustLearnOthers() bool {
	return w.ahead != nil && !w.others.known && !w.onlyOneAhead()
}

// passOthers has the entry that is to be put in place of this one remember the readers that this one
// waits for. Those that are gone by then are not ahead of it any more.
func (w *wait) passOthers(ctx context.Context, successor *wait) error {
	if err := w.untilRemovable(ctx); err != nil { // it learns the place, if that is unknown
		return err
	}
	if w.e.stage != placed || w.ahead == nil {
		return nil // whatever the entry waited for is judged
	}
	if q := w.e.q; w.mustLearnOthers() {
		switch resp, err := q.shared.get(ctx, q.othersAhead(w.e.rev)); {
		case err == nil:
			w.others.add(q, resp.Kvs, w.e.rev, false)
		case errors.Is(err, rpctypes.ErrCompacted):
			w.others.add(q, nil, w.e.rev, true)
		default:
			return err
		}
	}
	successor.others = w.others
	successor.others.known = false // its own are yet to be read
	return nil
}
