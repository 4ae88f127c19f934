package reads

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

// MaxRemembered bounds how many entries ahead are read to learn of their sessions: 100 kB of keys, of which a lease ID
// is kept for each session. With more entries, the lease of one is presumed to have ended.
const MaxRemembered = 1024

// Sessions are those of entries that stood ahead: of an entry that remembers them, those of the other mode.
type Sessions struct {
	Known   bool               // those ahead of this entry are among them
	Leases  []clientv3.LeaseID // of the sessions in order, each once, at most MaxRemembered
	Since   int64              // the revision at which the first of them stood
	Unknown bool               // there were more, or etcd no longer knows them
}

// Add adds entries that stood ahead at a revision. With unknown, etcd no longer knows which did.
func (r *Sessions) Add(entries []*mvccpb.KeyValue, at int64, unknown bool) {
	*r = r.With(entries)
	r.Known, r.Since, r.Unknown = true, cmp.Or(r.Since, at), r.Unknown || unknown
}

// With returns r with the sessions of further entries.
func (r Sessions) With(entries []*mvccpb.KeyValue) Sessions {
	for _, kv := range entries {
		if lease, ours := layout.LeaseOf(string(kv.Key)); ours {
			r.Leases = append(r.Leases, lease)
		}
	}
	slices.Sort(r.Leases)
	r.Leases = slices.Clip(slices.Compact(r.Leases)) // what is added to it is added to a copy
	if len(entries) > MaxRemembered || len(r.Leases) > MaxRemembered {
		r.Leases, r.Unknown = nil, true
	}
	return r
}

// Ask adds reads of whether each session key stood at a revision; 0: now. keyOf names the session key of a lease.
func (r Sessions) Ask(keyOf func(clientv3.LeaseID) string, ask *txns.Ops, at int64) txns.Groups {
	var groups [][]clientv3.Op
	for sessions := range slices.Chunk(r.Leases, txns.MaxOps) {
		reads := make([]clientv3.Op, len(sessions))
		for i, lease := range sessions {
			reads[i] = Stood(keyOf(lease), at)
		}
		groups = append(groups, reads)
	}
	return ask.AddGroups(groups)
}

// Absent returns the leases whose session keys the reads of Ask have not found.
func (r Sessions) Absent(reply txns.Reply, asked txns.Groups) (leases []clientv3.LeaseID) {
	for i, lease := range r.Leases {
		if asked.Of(reply, i/txns.MaxOps).Range(i%txns.MaxOps).Count == 0 {
			leases = append(leases, lease)
		}
	}
	return leases
}
