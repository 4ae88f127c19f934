package queue

import (
	"cmp"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/view"
)

// Queue is the queue of one name, as used by one session. It is immutable and does
// no I/O. A Queue with a bad name or without a session says so at the
// first Acquire.
type Queue struct {
	host   lease.Host
	shared *shared
	scope
	below string // of a reader: the path below this name that is locked, for people; or empty
	err   error  // why the queue cannot be used

	sem    *Semaphore // nil: it is none
	weight int        // of a semaphore: the permits that an attempt asks for at once

	youngest clientv3.Op // reads the conflicting entry that was created last, with its value
}

// Request is what a caller wants of a queue.
type Request struct {
	Owner string // for the entry's value; empty: the session's
	Data  string // for the entry's value: a candidate's

	OnWait func(view.Place) // is called by Acquire while it waits; may be nil

	telemetry *telemetry.Acquisition // set by the queue
}

// New returns the queue of a name. Its entries are NAMESPACE/KIND/NAME/@/….
func New(host lease.Host, kind holdfast.Kind, name string) *Queue {
	namespace := ""
	if host != nil {
		namespace = host.Namespace()
	}
	return newQueue(host, layout.Named(namespace, kind, name))
}

// At returns the queue of a foreign prefix, as etcd's concurrency package takes it.
// Its entries are PREFIX/…, and every key there counts as an entry.
func At(host lease.Host, kind holdfast.Kind, prefix string) *Queue {
	q := newQueue(host, layout.At(kind, prefix))
	if q.err == nil && strings.HasSuffix(prefix, "/") {
		q.shared.warnOfSlash(q.at)
	}
	return q
}

func newQueue(host lease.Host, at layout.Queue) *Queue {
	q := &Queue{host: host, scope: scope{at: at}, err: at.Check()}
	if host == nil {
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

// Downgradable returns the queue as one acquisition uses it that is to hold alone first, and
// then beside readers: as a writer and as a reader. The entries of both stand from the
// beginning, so no writer can come in between.
func (q *Queue) Downgradable() Set { return Set{q, q.Readers()} }

// key is a key of an entry that is put through q.
func (q *Queue) key(id string) string {
	switch {
	case q.reader:
		return q.at.ReaderKey(id)
	case q.sem != nil:
		return q.at.PermitKey(q.weight, id)
	default:
		return q.at.Key(id)
	}
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

// Kind returns what the name is of.
func (q *Queue) Kind() holdfast.Kind {
	if q == nil {
		return ""
	}
	return q.at.Kind
}

// String names the queue for the text of an error, such as `lock "x"`.
func (q *Queue) String() string { return q.at.String() }

// Name returns the name or prefix as it was given.
func (q *Queue) Name() string {
	if q == nil {
		return ""
	}
	return q.at.Name
}

// IsReader reports whether the queue is used by readers: see Readers.
func (q *Queue) IsReader() bool { return q != nil && q.reader }

// Layout says where the entries stand.
func (q *Queue) Layout() layout.Queue { return q.at }

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
	return q.at.Entries == other.at.Entries && q.host.Client() == other.host.Client()
}

// entryValue returns the value of an entry that is about to be put for a caller.
func (q *Queue) entryValue(r Request) string {
	if q.at.Verbatim() {
		return r.Data
	}
	who := q.host.Identity()
	who.Owner = cmp.Or(r.Owner, who.Owner)
	v := layout.Value{Identity: who, Mode: q.mode(), Queued: time.Now(), Data: cmp.Or(r.Data, q.below)}
	if q.at.TakesNotices() {
		v.ToldWithin = ToldWithin(q.shared.lockDelay)
	}
	return v.Encode()
}

// mode is what the value of an entry says that it excludes.
func (q *Queue) mode() string {
	switch {
	case q.at.Kind == holdfast.KindElection:
		return ""
	case q.reader:
		return "shared"
	case q.sem != nil:
		return "permit"
	default:
		return "exclusive"
	}
}
