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
	kind    string // "lock", "tree", "sem" or "election"
	name    string // as the user gave it
	entries string // prefix of the entries; ends in "/"
	foreign bool   // entries of other queues may stand below the prefix
	reader  bool   // its entries do not exclude one another: see Readers
	err     error  // why the queue cannot be used

	sem    *semaphore // nil: it is none
	weight int        // of a semaphore: the permits that an attempt asks for at once

	youngest clientv3.Op // reads the conflicting entry that was created last, with its value
}

// readerMark begins the last part of a reader's key, and afterReaders is the first
// string that sorts behind all that begin with it. So the readers of a queue stand
// before all other entries, and the entries that a reader waits for are one range.
const (
	readerMark   = "!s"
	afterReaders = "\""
)

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
	q.init()
	if q.err == nil && strings.HasSuffix(prefix, "/") {
		q.warnOfSlash()
	}
	return q
}

// warnOfSlash tells the session's logger of a prefix that ends in "/", unless the session's options say that it is
// meant. Once for each session, because a program may make a queue for each request.
func (q *Queue) warnOfSlash() {
	if q.host.TrailingSlash() || q.shared.warnedOfSlash.Swap(true) {
		return
	}
	q.host.Logger().Warn(`a prefix ends in "/": contenders that name it without the slash do not exclude this one; `+
		"remove the slash, or, if all contenders have it, set session.Options.TrailingSlash",
		"kind", q.kind, "name", q.name, "entries", q.entries)
}

func (q *Queue) init() *Queue {
	if q.host == nil {
		q.err = &holdfast.ArgumentError{Argument: "sess", Reason: "is nil"}
		return q
	}
	q.shared, q.youngest = sharedBy(q.host), q.youngestConflicting()
	return q
}

// Readers returns the queue as readers use it: an entry that is put through it is
// excluded by all entries but those of other readers.
func (q *Queue) Readers() *Queue {
	if q == nil {
		return nil
	}
	readers := *q
	readers.reader = true
	if q.err == nil {
		readers.youngest = readers.youngestConflicting()
	}
	return &readers
}

// keyPrefix is what the keys begin with that are put through q.
func (q *Queue) keyPrefix() string {
	switch {
	case q.reader:
		return q.entries + readerMark
	case q.sem != nil:
		return q.entries + strconv.Itoa(q.weight) + "-"
	default:
		return q.entries
	}
}

// conflicting returns the range of the entries that exclude one that is put through q.
func (q *Queue) conflicting() (from, end string) {
	end = clientv3.GetPrefixRangeEnd(q.entries)
	if q.reader {
		return q.entries + afterReaders, end
	}
	return q.entries, end
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

// Kind returns "lock", "tree", "sem" or "election".
func (q *Queue) Kind() string {
	if q == nil {
		return ""
	}
	return q.kind
}

// Name returns the name or prefix as it was given.
func (q *Queue) Name() string {
	if q == nil {
		return ""
	}
	return q.name
}

// IsReader reports whether the queue is used by readers: see Readers.
func (q *Queue) IsReader() bool { return q != nil && q.reader }

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
	if q.takesNotices() {
		opts = append(opts, clientv3.WithLimit(2))
	}
	return clientv3.OpGet(q.entries, opts...)
}

// holderIn returns the entry that holds out of the reply to oldest; nil if there is none.
func holderIn(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(kvs) == 2 && kvs[0].CreateRevision == kvs[1].CreateRevision && isReader(string(kvs[0].Key)) {
		return kvs[1]
	}
	return first(kvs)
}

// OldestWriter reads the oldest entry below a prefix that is not a reader's.
func OldestWriter(entries string) clientv3.Op {
	return clientv3.OpGet(entries+afterReaders, clientv3.WithRange(clientv3.GetPrefixRangeEnd(entries)),
		clientv3.WithLimit(1), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
}

// nearest reads the youngest conflicting entry created at maxCreate or before, as it
// stood at revision at. 0 means any, and now. The server sorts all keys of the range for
// it, as it does for every choice by create revision.
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
	from, end := q.entries+readerMark, q.entries+afterReaders
	if q.reader {
		from, end = q.conflicting()
	}
	return clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithKeysOnly(),
		clientv3.WithLimit(maxJudged+1), clientv3.WithMaxCreateRev(created-1), clientv3.WithRev(created))
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
	hex, nonce, _ := strings.Cut(withoutMode(lastPart(key)), "-")
	if !isNonce(nonce) { // a UUID, say
		return clientv3.NoLease, false
	}
	lease, err := strconv.ParseInt(hex, 16, 64)
	return clientv3.LeaseID(lease), err == nil
}

// withoutMode cuts off what stands before the lease in the last part of a key: the mark of a reader, or the weight of a
// permit.
func withoutMode(part string) string {
	if weight, rest, _ := strings.Cut(part, "-"); strings.Contains(rest, "-") && validWeight(weight) > 0 {
		return rest
	}
	return strings.TrimPrefix(part, readerMark)
}

// IsReaderKey reports whether an entry of ours is a reader's.
func IsReaderKey(key string) bool { return isReader(key) }

func isReader(key string) bool { return strings.HasPrefix(lastPart(key), readerMark) }

func lastPart(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }

// read sends several reads as one linearizable Txn.
func (q *Queue) read(ctx context.Context, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	return q.readIf(ctx, nil, ops...)
}

// readIf is read if the comparisons are true. Otherwise it reads nothing.
func (q *Queue) readIf(ctx context.Context, cmps []clientv3.Cmp, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	send := func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return q.host.Client().Txn(ctx).If(cmps...).Then(ops...).Commit()
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

// checkEmpty reads whether some queues are empty, and returns ErrOccupied, with the place in
// the first that is not, or ErrUnconfirmed if all entries are of this session. It is called
// while no goroutine of this session is in the line, so those are left over, unless MinHold
// keeps one.
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
	epoch := resp.Responses[0].GetResponseRange().Kvs
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
func (q *Queue) emptyIn(resp *clientv3.TxnResponse, i int, epoch []*mvccpb.KeyValue) error {
	standing := resp.Responses[i+1].GetResponseRange()
	own := fmt.Sprintf("%x-", int64(q.host.Lease().ID()))
	isOwn := func(kv *mvccpb.KeyValue) bool {
		return strings.HasPrefix(strings.TrimPrefix(string(kv.Key[len(q.entries):]), readerMark), own)
	}
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
