package reads

import (
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
