package queue

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/sending"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// scope is which entries a queue has, and which of them exclude one that is put through it.
type scope struct {
	at     layout.Queue
	reader bool // entries that are put through it do not exclude one another: see Queue.Readers
}

// conflicting returns the range of the entries that exclude one that is put through q.
func (s scope) conflicting() (from, end string) {
	if s.reader {
		return s.at.Writers()
	}
	return s.at.All()
}

// youngestConflicting reads the conflicting entry that was created last, with its value.
func (s scope) youngestConflicting() clientv3.Op {
	from, end := s.conflicting()
	return clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithLimit(1),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend))
}

// oldest reads the entry of the queue that was created first, which holds, with its value. The two entries of a
// Downgradable have one create revision, so it reads two: see holderIn.
func (s scope) oldest() clientv3.Op {
	opts := clientv3.WithFirstCreate()
	if s.at.Kind != holdfast.KindElection {
		opts = append(opts, clientv3.WithLimit(2))
	}
	return clientv3.OpGet(s.at.Entries, opts...)
}

// holderIn returns the entry that holds out of the reply to oldest; nil if there is none.
func holderIn(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(kvs) == 2 && kvs[0].CreateRevision == kvs[1].CreateRevision && layout.IsReader(string(kvs[0].Key)) {
		return kvs[1]
	}
	return txns.First(kvs)
}

// nearest reads the youngest conflicting entry created at maxCreate or before, as it stood at revision at. 0 means any,
// and now. The server sorts all keys of the range for it, as it does for every choice by create revision.
func (s scope) nearest(maxCreate, at int64) clientv3.Op {
	return s.ahead(maxCreate, at, clientv3.WithLimit(1),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend))
}

// ahead reads the conflicting entries created at maxCreate or before, as they stood at
// revision at. 0 means any, and now.
func (s scope) ahead(maxCreate, at int64, opts ...clientv3.OpOption) clientv3.Op {
	from, end := s.conflicting()
	opts = append(opts, clientv3.WithRange(end), clientv3.WithKeysOnly())
	if maxCreate > 0 {
		opts = append(opts, clientv3.WithMaxCreateRev(maxCreate))
	}
	if at > 0 {
		opts = append(opts, clientv3.WithRev(at))
	}
	return clientv3.OpGet(from, opts...)
}

// othersAhead reads the entries of the other mode that stood ahead of an entry when it was
// created, one more than are remembered: of a writer the readers, of a reader the writers.
func (s scope) othersAhead(created int64) clientv3.Op {
	from, end := s.at.Readers()
	if s.reader {
		from, end = s.at.Writers()
	}
	return clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithKeysOnly(),
		clientv3.WithLimit(maxRemembered+1), clientv3.WithMaxCreateRev(created-1), clientv3.WithRev(created))
}

// read sends several reads as one linearizable Txn.
func (s *shared) read(ctx context.Context, ops ...clientv3.Op) (txns.Reply, error) {
	return txns.Txn{Then: ops}.Ask(ctx, s.host.Sender(), sending.Read)
}

// get sends one linearizable read.
func (s *shared) get(ctx context.Context, op clientv3.Op) (*clientv3.GetResponse, error) {
	return s.host.Sender().Get(ctx, op)
}

// ReportUnknown reports whether the outcome of the request is unknown, and counts it if so.
func (q *Queue) ReportUnknown(request string, err error) bool {
	if etcderr.Classify(err) != etcderr.Unknown {
		return false
	}
	q.host.Telemetry().Ambiguous(q.at.Kind, request)
	return true
}

// getMeta reads a key without its value.
func getMeta(key string) clientv3.Op { return clientv3.OpGet(key, clientv3.WithKeysOnly()) }

// isEntry reports whether kv is the entry that was created at rev.
func isEntry(kv *mvccpb.KeyValue, rev int64) bool { return kv != nil && kv.CreateRevision == rev }

// counts reads whether a key stood at a revision; 0: now.
func counts(key string, at int64) clientv3.Op {
	return clientv3.OpGet(key, clientv3.WithRev(at), clientv3.WithCountOnly())
}
