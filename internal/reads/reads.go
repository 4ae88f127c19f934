// Package reads is how the entries of a queue are read: the operations of a Txn that find those which exclude another
// one, as they stand or as they stood at a revision, and what the replies say of them and of their sessions.
package reads

import (
	"bytes"
	"cmp"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// Scope is which entries a queue has, and which of them exclude one that is put through it.
type Scope struct {
	At     layout.Queue
	Reader bool // entries that are put through it do not exclude one another
}

// Conflicting returns the range of the entries that exclude one that is put through the queue.
func (s Scope) Conflicting() (from, end string) {
	if s.Reader {
		return s.At.Writers()
	}
	return s.At.All()
}

// others returns the range of the entries of the other mode: for a writer the readers, for a reader the writers.
func (s Scope) others() (from, end string) {
	if s.Reader {
		return s.At.Writers()
	}
	return s.At.Readers()
}

// Youngest reads the conflicting entry that was created last, with its value.
func (s Scope) Youngest() clientv3.Op {
	from, end := s.Conflicting()
	return clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithLimit(1), youngest)
}

// Oldest reads the entry of the queue that was created first, which holds, with its value. The two entries of a
// Downgradable have one create revision, so it reads two: see Holder.
func (s Scope) Oldest() clientv3.Op {
	opts := clientv3.WithFirstCreate()
	if s.At.Kind != holdfast.KindElection {
		opts = append(opts, clientv3.WithLimit(2))
	}
	return clientv3.OpGet(s.At.Entries, opts...)
}

// Holder returns the entry that holds out of the reply to Oldest; nil if there is none.
func Holder(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(kvs) == 2 && kvs[0].CreateRevision == kvs[1].CreateRevision && layout.IsReader(string(kvs[0].Key)) {
		return kvs[1]
	}
	return txns.First(kvs)
}

// Nearest reads the youngest conflicting entry created at maxCreate or before, as it stood at revision at. 0 means any,
// and now. The server sorts all keys of the range for it, as it does for every choice by create revision.
func (s Scope) Nearest(maxCreate, at int64) clientv3.Op {
	return s.Ahead(maxCreate, at, clientv3.WithLimit(1), youngest)
}

// Ahead reads the conflicting entries created at maxCreate or before, as they stood at
// revision at. 0 means any, and now.
func (s Scope) Ahead(maxCreate, at int64, opts ...clientv3.OpOption) clientv3.Op {
	return s.read(s.Conflicting, maxCreate, at, append(opts, clientv3.WithKeysOnly())...)
}

// OldestAhead is Ahead of the oldest, as many as limit; 0: of all, in the order of their creation.
func (s Scope) OldestAhead(maxCreate, at, limit int64) clientv3.Op {
	return s.Ahead(maxCreate, at, clientv3.WithLimit(limit), oldest)
}

// YoungestAhead is Nearest with the value.
func (s Scope) YoungestAhead(maxCreate, at int64) clientv3.Op {
	return s.read(s.Conflicting, maxCreate, at, clientv3.WithLimit(1), youngest)
}

// OthersAhead reads the entries of the other mode that stood ahead of an entry when it was
// created, one more than Sessions remembers: of a writer the readers, of a reader the writers.
func (s Scope) OthersAhead(created int64) clientv3.Op {
	return s.read(s.others, created-1, created, clientv3.WithKeysOnly(), clientv3.WithLimit(MaxRemembered+1))
}

// OldestOf reads the oldest entries of a lease that were created at maxCreate or before, as they stood at a revision:
// the writer's, and, for a writer, the reader's.
func (s Scope) OldestOf(lease clientv3.LeaseID, maxCreate, at int64) []clientv3.Op {
	writers := func() (from, end string) { return s.At.WritersOn(lease) }
	reads := []clientv3.Op{s.oldestIn(writers, maxCreate, at)}
	if !s.Reader {
		readers := func() (from, end string) { return s.At.ReadersOn(lease) }
		reads = append(reads, s.oldestIn(readers, maxCreate, at))
	}
	return reads
}

// OldestWriter reads the oldest entry of a writer, as it stood at a revision.
func (s Scope) OldestWriter(at int64) clientv3.Op { return s.oldestIn(s.At.Writers, 0, at) }

// OldestConflicting reads the oldest conflicting entry, as it stood at a revision.
func (s Scope) OldestConflicting(at int64) clientv3.Op { return s.oldestIn(s.Conflicting, 0, at) }

func (s Scope) oldestIn(in func() (from, end string), maxCreate, at int64) clientv3.Op {
	return s.read(in, maxCreate, at, clientv3.WithKeysOnly(), clientv3.WithLimit(1), oldest)
}

// read reads a range: the entries created at maxCreate or before, as they stood at revision at. 0 means any, and now.
func (s Scope) read(in func() (from, end string), maxCreate, at int64, opts ...clientv3.OpOption) clientv3.Op {
	from, end := in()
	opts = append(opts, clientv3.WithRange(end))
	if maxCreate > 0 {
		opts = append(opts, clientv3.WithMaxCreateRev(maxCreate))
	}
	if at > 0 {
		opts = append(opts, clientv3.WithRev(at))
	}
	return clientv3.OpGet(from, opts...)
}

var (
	youngest = clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend)
	oldest   = clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)
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

// Meta reads a key without its value.
func Meta(key string) clientv3.Op { return clientv3.OpGet(key, clientv3.WithKeysOnly()) }

// Stood reads whether a key stood at a revision; 0: now.
func Stood(key string, at int64) clientv3.Op {
	return clientv3.OpGet(key, clientv3.WithRev(at), clientv3.WithCountOnly())
}

// IsEntry reports whether kv is the entry that was created at rev.
func IsEntry(kv *mvccpb.KeyValue, rev int64) bool { return kv != nil && kv.CreateRevision == rev }

// CreatedAt is true in a Txn while key has the value that was created at rev; with rev 0, while the key does not exist.
func CreatedAt(key string, rev int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", rev)
}

// IsEnd reports whether an event is the deletion of an entry. Keys are used again, and a watch on a member that lags
// also tells what came before it was created: perhaps the deletion of an earlier entry at this key. Who judged by that
// revision would hold beside the present one.
func IsEnd(event *clientv3.Event, entry *mvccpb.KeyValue) bool {
	return event.Type == clientv3.EventTypeDelete && bytes.Equal(event.Kv.Key, entry.Key) &&
		event.Kv.ModRevision > entry.CreateRevision
}
