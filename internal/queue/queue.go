package queue

import (
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
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
	below   string // of a reader: the path below this name that is locked, for people; or empty
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
	q := &Queue{host: host, kind: kind, name: name, err: names.Check(kind, name)}
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
		entries: entriesPrefix("", kind, prefix, true), err: names.CheckPrefix(kind, prefix),
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

// Above returns the queue as a lock of a path below its name uses it: as its readers do.
func (q *Queue) Above(path string) *Queue {
	above := q.Readers()
	above.below = path
	return above
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

// String names the queue for the text of an error, such as `lock "x"`.
func (q *Queue) String() string {
	kind := q.kind
	if q.sem != nil {
		kind = "semaphore"
	}
	return kind + " " + names.Quote(q.name)
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
