package queue

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// youngestConflicting reads the conflicting entry that was created last, with its value.
func (q *Queue) youngestConflicting() clientv3.Op {
	from, end := q.conflicting()
	return clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithLimit(1),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend))
}

// oldest reads the entry of the queue that was created first, which holds, with its value. The two entries of a
// Downgradable have one create revision, so it reads two: see holderIn.
func (q *Queue) oldest() clientv3.Op {
	opts := clientv3.WithFirstCreate()
	if q.at.TakesNotices() {
		opts = append(opts, clientv3.WithLimit(2))
	}
	return clientv3.OpGet(q.at.Entries, opts...)
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
func (q *Queue) nearest(maxCreate, at int64) clientv3.Op {
	return q.ahead(maxCreate, at, clientv3.WithLimit(1),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend))
}

// ahead reads the conflicting entries created at maxCreate or before, as they stood at
// revision at. 0 means any, and now.
func (q *Queue) ahead(maxCreate, at int64, opts ...clientv3.OpOption) clientv3.Op {
	from, end := q.conflicting()
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
// created, one more than are judged: of a writer the readers, of a reader the writers.
func (q *Queue) othersAhead(created int64) clientv3.Op {
	from, end := q.at.Readers()
	if q.reader {
		from, end = q.at.Writers()
	}
	return clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithKeysOnly(),
		clientv3.WithLimit(maxJudged+1), clientv3.WithMaxCreateRev(created-1), clientv3.WithRev(created))
}

// read sends several reads as one linearizable Txn.
func (q *Queue) read(ctx context.Context, ops ...clientv3.Op) (txns.Reply, error) {
	return txns.Txn{Then: ops}.Ask(ctx, q.host.Sender(), attempt.Read)
}

// get sends one linearizable read.
func (q *Queue) get(ctx context.Context, op clientv3.Op) (*clientv3.GetResponse, error) {
	send := func(ctx context.Context) (*clientv3.GetResponse, error) {
		resp, err := q.host.Client().Do(ctx, op)
		return resp.Get(), err
	}
	return attempt.Ask(ctx, q.host.Sender(), attempt.Read, send)
}

// getMeta reads a key without its value.
func getMeta(key string) clientv3.Op { return clientv3.OpGet(key, clientv3.WithKeysOnly()) }

// isEntry reports whether kv is the entry that was created at rev.
func isEntry(kv *mvccpb.KeyValue, rev int64) bool { return kv != nil && kv.CreateRevision == rev }

// checkEmpty reads whether some queues are empty, and returns ErrOccupied, with the place in the first that is not, or
// ErrUnconfirmed if all entries are of this session. It is called while no goroutine of this session is in the line, so
// those are left over, unless MinHold keeps one.
func checkEmpty(ctx context.Context, queues []*Queue) error {
	open, cancel := withSession(ctx, queues[0].host)
	defer cancel()
	ops := []clientv3.Op{queues[0].shared.getEpoch} // 1 and 2 for each queue: as many as etcd takes for MaxSet
	for _, q := range queues {
		ops = append(ops, q.lookAhead(0)[:2]...)
	}
	resp, err := queues[0].read(open, ops...)
	if err != nil {
		return queues[0].closedErr(ctx, err)
	}
	epoch := resp.Range(0).Kvs
	for i, q := range queues {
		err := q.emptyIn(resp, 1+2*i, epoch)
		if err != nil && len(queues) > 1 {
			err = q.naming(err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// emptyIn reads the replies to the first two reads of lookAhead(0), the first of which is response i.
func (q *Queue) emptyIn(resp txns.Reply, i int, epoch []*mvccpb.KeyValue) error {
	standing := resp.Range(i + 1)
	own := q.host.Lease().ID()
	isOwn := func(kv *mvccpb.KeyValue) bool { return q.at.IsOn(own, string(kv.Key)) }
	first := q.aheadOf(resp, i, 0, epoch)
	switch {
	case len(standing.Kvs) == 0:
		return nil
	case standing.More || slices.ContainsFunc(standing.Kvs, func(kv *mvccpb.KeyValue) bool { return !isOwn(kv) }),
		q.taken(first.holder), q.shared.hasOthers(q):
		return &PlacedError{first.place(q), ErrOccupied}
	default:
		return ErrUnconfirmed
	}
}
