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

// Queue is the queue of one name, as used by one session. It is immutable and does
// no I/O. A Queue with a bad name or without a session says so at the
// first Acquire.
type Queue struct {
	host    lease.Host
	shared  *shared
	kind    string // "lock" or "election"
	name    string // as the user gave it
	entries string // prefix of the entries; ends in "/"
	foreign bool   // entries of other queues may stand below the prefix
	err     error  // why the queue cannot be used

	youngest clientv3.Op // reads the entry that was created last, with its value
}

// New returns the queue of a name. Its entries are NAMESPACE/KIND/NAME/@/….
func New(host lease.Host, kind, name string) *Queue {
	q := &Queue{host: host, kind: kind, name: name, err: CheckName(kind, name)}
	if host != nil {
		q.entries = entriesPrefix(host.Namespace(), kind, name, false)
	}
	return q.init()
}

// At returns the queue of a foreign prefix, as etcd's concurrency package takes it.
// Its entries are PREFIX/…, and every key there counts as an entry.
func At(host lease.Host, kind, prefix string) *Queue {
	q := &Queue{
		host: host, kind: kind, name: prefix, foreign: true,
		entries: entriesPrefix("", kind, prefix, true), err: checkPrefix(kind, prefix),
	}
	return q.init()
}

func (q *Queue) init() *Queue {
	if q.host == nil {
		q.err = &holdfast.ArgumentError{Argument: "sess", Reason: "is nil"}
		return q
	}
	q.shared, q.youngest = sharedBy(q.host), clientv3.OpGet(q.entries, clientv3.WithLastCreate()...)
	return q
}

// entriesPrefix returns the prefix of the entries of a name, or of a foreign prefix.
func entriesPrefix(namespace, kind, name string, foreign bool) string {
	if foreign {
		return name + "/"
	}
	return namespace + "/" + kind + "/" + name + "/@/"
}

// errNoQueue: a Mutex{} or an Election{}.
var errNoQueue = &holdfast.ArgumentError{
	Argument: "receiver",
	Reason:   "is a zero value: make it with one of the constructors, which take a session and a name",
}

// Host returns the session that the queue was made with; nil without one.
func (q *Queue) Host() lease.Host {
	if q == nil {
		return nil
	}
	return q.host
}

// Name returns the name or prefix as it was given.
func (q *Queue) Name() string {
	if q == nil {
		return ""
	}
	return q.name
}

// Prefix returns what the keys of all entries begin with.
func (q *Queue) Prefix() string { return q.entries }

// Err returns why the queue cannot be used, or nil.
func (q *Queue) Err() error {
	if q == nil {
		return errNoQueue
	}
	return q.err
}

// Same reports whether two queues have the same entries: the same keys, through the
// same client. With another client the same name may be other keys, because
// client/v3/namespace adds a prefix to all of them.
func (q *Queue) Same(other *Queue) bool {
	return q.entries == other.entries && q.host.Client() == other.host.Client()
}

// front reads the entry created at rev and the nearest one ahead of it.
func (q *Queue) front(rev int64) clientv3.Op {
	return clientv3.OpGet(q.entries, append(lastTwo, clientv3.WithMaxCreateRev(rev))...)
}

// nearest reads the youngest entry created at maxCreate or before, as it stood at
// revision at. 0 means any, and now.
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

// Options to read the youngest entries of a prefix. The server sorts all keys of the
// prefix for it, as it does for every choice by create revision.
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

// sessionKeyOf returns the session key of the lease that an entry is bound to, which
// the entry's key names. An entry of another client's lock has none.
func (q *Queue) sessionKeyOf(kv *mvccpb.KeyValue) (key string, ours bool) {
	lease, ours := LeaseOf(string(kv.Key))
	if !ours {
		return "", false
	}
	return q.host.SessionKey(lease), true
}

// LeaseOf returns the lease under which an entry was put, which its key names. It reports
// false for an entry of another client, whose key has another form.
func LeaseOf(key string) (id clientv3.LeaseID, ours bool) {
	hex, nonce, _ := strings.Cut(key[strings.LastIndexByte(key, '/')+1:], "-")
	if !isNonce(nonce) { // a UUID, say
		return clientv3.NoLease, false
	}
	lease, err := strconv.ParseInt(hex, 16, 64)
	return clientv3.LeaseID(lease), err == nil
}

// read sends several reads as one linearizable Txn.
func (q *Queue) read(ctx context.Context, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	send := func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return q.host.Client().Txn(ctx).Then(ops...).Commit()
	}
	return attempt.Ask(ctx, q.host.Sender(), attempt.Read, send)
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

// rangeAt returns the first key in the i-th response of a Txn, or nil.
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

// checkEmpty reads whether the queue is empty, and returns ErrOccupied, with the place, or
// ErrUnconfirmed if all entries are of this session. It is called while no goroutine
// of this session is in the line, so those are left over, unless MinHold keeps one.
func (q *Queue) checkEmpty(ctx context.Context) error {
	open, cancel := withSession(ctx, q.host)
	defer cancel()
	resp, err := q.read(open, q.lookAhead(0)...)
	if err != nil {
		return q.closedErr(ctx, err)
	}
	standing := resp.Responses[1].GetResponseRange()
	own := fmt.Sprintf("%s%x-", q.entries, int64(q.host.Lease().ID()))
	isOwn := func(kv *mvccpb.KeyValue) bool { return strings.HasPrefix(string(kv.Key), own) }
	first := aheadIn(resp, 0, 0)
	switch {
	case len(standing.Kvs) == 0:
		return nil
	case standing.More || slices.ContainsFunc(standing.Kvs, func(kv *mvccpb.KeyValue) bool { return !isOwn(kv) }),
		q.taken(first.holder):
		return &PlacedError{first.place(q), ErrOccupied}
	default:
		return ErrUnconfirmed
	}
}
