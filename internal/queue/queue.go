package queue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// Queue is the line of one name, as seen by one session. It is immutable and
// does no I/O by itself; a Queue with a bad name or without a session says so
// at the first Acquire.
type Queue struct {
	sess    lease.Host
	local   *lines // what the session keeps of its queues
	kind    string // "lock" or "election"
	name    string // as the user gave it
	entries string // entries stand under this prefix; ends in "/"
	foreign bool   // other queues' entries may stand under entries
	err     error  // why this queue cannot be used
}

// New returns the queue of a name: entries under NAMESPACE/KIND/NAME/@/.
func New(sess lease.Host, kind, name string) *Queue {
	q := &Queue{sess: sess, kind: kind, name: name}
	if sess == nil {
		q.err = &holdfast.ArgumentError{Argument: "sess", Reason: "is nil"}
		return q
	}
	q.err, q.local = CheckName(kind, name), linesOf(sess)
	q.entries = entriesPrefix(sess.Namespace(), kind, name, false)
	return q
}

// At returns the queue of a foreign prefix, as etcd's concurrency package
// takes it: entries under PREFIX/. Every key there counts as an entry.
func At(sess lease.Host, kind, prefix string) *Queue {
	q := &Queue{sess: sess, kind: kind, name: prefix, foreign: true}
	if sess == nil {
		q.err = &holdfast.ArgumentError{Argument: "sess", Reason: "is nil"}
		return q
	}
	q.err, q.local = checkPrefix(kind, prefix), linesOf(sess)
	q.entries = entriesPrefix("", kind, prefix, true)
	return q
}

// entriesPrefix is where the entries of a name stand, or of a foreign prefix.
func entriesPrefix(namespace, kind, name string, foreign bool) string {
	if foreign {
		return name + "/"
	}
	return namespace + "/" + kind + "/" + name + "/@/"
}

// errNoQueue: a Mutex{} or an Election{}.
var errNoQueue = &holdfast.ArgumentError{Argument: "receiver", Reason: "is a zero value: make it with one of the constructors, which take a session and a name"}

// Host is the session the queue was made with; nil without one.
func (q *Queue) Host() lease.Host {
	if q == nil {
		return nil
	}
	return q.sess
}

// Name is the name or prefix as it was given.
func (q *Queue) Name() string {
	if q == nil {
		return ""
	}
	return q.name
}

// Err is why the queue cannot be used, or nil.
func (q *Queue) Err() error {
	if q == nil {
		return errNoQueue
	}
	return q.err
}

// Same reports whether two queues certainly are one line: the same entries, seen
// through the same client. Other clients may add prefixes of their own to all
// keys, as client/v3/namespace does, so that the same name is another key.
func (q *Queue) Same(other *Queue) bool {
	return q.entries == other.entries && q.sess.Client() == other.sess.Client()
}

// front reads the own entry created at rev and the nearest one ahead of it.
// Nothing can join the queue ahead of an entry, so what is ahead only shrinks.
func (q *Queue) front(rev int64) clientv3.Op {
	return clientv3.OpGet(q.entries, append(lastTwo, clientv3.WithMaxCreateRev(rev))...)
}

// nearest reads the youngest entry created at maxCreate or before, 0: any, as it
// stood at revision at, 0: now.
func (q *Queue) nearest(maxCreate, at int64) clientv3.Op {
	opts := last
	if maxCreate > 0 {
		opts = append(opts, clientv3.WithMaxCreateRev(maxCreate))
	}
	if at > 0 {
		opts = append(opts, clientv3.WithRev(at))
	}
	return clientv3.OpGet(q.entries, opts...)
}

// The youngest entries of a queue. The server sorts the whole prefix for it, as
// it does for every choice by create revision.
var (
	last    = slices.Clip(youngest(1))
	lastTwo = slices.Clip(youngest(2))
)

func youngest(n int64) []clientv3.OpOption {
	return []clientv3.OpOption{
		clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(n),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend),
	}
}

// sessionKeyOf returns the session key of the lease that an entry is bound to,
// which the entry's name tells. A lock of another client has none.
func (q *Queue) sessionKeyOf(kv *mvccpb.KeyValue) (key string, ours bool) {
	name := string(kv.Key[strings.LastIndexByte(string(kv.Key), '/')+1:])
	hex, nonce, _ := strings.Cut(name, "-")
	if !isNonce(nonce) { // a UUID, say
		return "", false
	}
	id, err := strconv.ParseInt(hex, 16, 64)
	if err != nil {
		return "", false
	}
	return q.sess.SessionKey(clientv3.LeaseID(id)), true
}

// read puts several reads to etcd as one linearizable Txn.
func (q *Queue) read(ctx context.Context, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	return attempt.Ask(ctx, q.sess.Sender(), attempt.Read, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return q.sess.Client().Txn(ctx).Then(ops...).Commit()
	})
}

// get is read of a single range.
func (q *Queue) get(ctx context.Context, op clientv3.Op) (*clientv3.GetResponse, error) {
	return attempt.Ask(ctx, q.sess.Sender(), attempt.Read, func(ctx context.Context) (*clientv3.GetResponse, error) {
		resp, err := q.sess.Client().Do(ctx, op)
		return resp.Get(), err
	})
}

// rangeAt is the first key in the i-th answer of a read, or nil.
func rangeAt(resp *clientv3.TxnResponse, i int) *mvccpb.KeyValue {
	return first(resp.Responses[i].GetResponseRange().Kvs)
}

func first(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	return kvs[0]
}

// isEntry reports whether kv is the entry that was created at rev.
func isEntry(kv *mvccpb.KeyValue, rev int64) bool { return kv != nil && kv.CreateRevision == rev }

// occupied returns ErrOccupied if the queue has entries, ErrUnconfirmed if all of
// them are this session's, and nil if it has none: one read. It is asked while no
// goroutine of this session is in line, so an own entry is one that is left over.
func (q *Queue) occupied(ctx context.Context) error {
	resp, err := q.get(ctx, clientv3.OpGet(q.entries, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(maxJudged)))
	if err != nil {
		return err
	}
	own := fmt.Sprintf("%s%x-", q.entries, int64(q.sess.Lease().ID()))
	isOwn := func(kv *mvccpb.KeyValue) bool { return strings.HasPrefix(string(kv.Key), own) }
	switch {
	case len(resp.Kvs) == 0:
		return nil
	case resp.More || slices.ContainsFunc(resp.Kvs, func(kv *mvccpb.KeyValue) bool { return !isOwn(kv) }):
		return ErrOccupied
	default:
		return ErrUnconfirmed
	}
}
