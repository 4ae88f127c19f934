package queue

import (
	"cmp"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
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

const (
	// maxRemembered bounds how many entries ahead are read to learn of their sessions: 100 kB of keys, of which a lease
	// ID is kept for each session. With more entries, the lease of one is presumed to have ended.
	maxRemembered = 1024

	// maxJudged is the bound where each session key needs an operation of one Txn, and none inside another.
	maxJudged = 64
)

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

// ask adds reads of whether each session key stood at a revision; 0: now.
func (r othersAhead) ask(q *Queue, ask *txns.Ops, at int64) txns.Groups {
	var groups [][]clientv3.Op
	for sessions := range slices.Chunk(r.sessions, maxOps) {
		reads := make([]clientv3.Op, len(sessions))
		for i, lease := range sessions {
			reads[i] = counts(q.host.SessionKey(lease), at)
		}
		groups = append(groups, reads)
	}
	return ask.AddGroups(groups)
}

// absent returns the leases whose session keys the reads of ask have not found.
func (r othersAhead) absent(reply txns.Reply, asked txns.Groups) (leases []clientv3.LeaseID) {
	for i, lease := range r.sessions {
		if asked.Of(reply, i/maxOps).Range(i%maxOps).Count == 0 {
			leases = append(leases, lease)
		}
	}
	return leases
}
