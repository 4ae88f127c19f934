package queue

import (
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/lease"
)

var (
	// errOccupied: the queue was not empty, and empty was the condition.
	errOccupied = errors.New("the queue is not empty")
	// errEntryGone: the entry was removed by another client.
	errEntryGone = errors.New("the entry is no longer in the queue")
	// errEpochMoved: the epoch was bumped between the put and the answer.
	errEpochMoved = errors.New("the fencing epoch was bumped while the entry was being put")
)

// stage is how far an entry has come. It only grows.
type stage int

const (
	unsent  stage = iota // no request that puts it was sent
	sent                 // one was sent; its create revision is not known
	created              // its create revision is known
	placed               // what stands ahead of it is known as well
	held                 // it was granted
	ended                // the attempt is over; what it left open is the sweeper's
)

// entry is one attempt's place in the queue: a key that only this attempt puts.
// One goroutine at a time works on it; a place is handed on with all that is
// known of it.
type entry struct {
	q     *Queue
	lease *lease.Lease
	value string
	id    string // the last part of key

	ticket *ticket // of the caller it was put for
	key    string

	// anew: the attempt was under way when its session lost a lease, or had an
	// entry that another client deleted. Its new entry is granted only after the
	// lock delay, since holders that it once waited for may have been revoked.
	anew bool

	token    fencing.Token // known together with rev
	position int64         // how many entries stood ahead when it was put
	revision int64         // of the store, at the latest read that saw the entry

	openAt   int64 // gate of the latest copy of the put that was not answered; 0: all were
	removing bool  // a request that removes the entry was sent and not answered

	mu    sync.Mutex // protects what follows from Close; the working goroutine alone writes
	stage stage
	rev   int64            // create revision
	ahead *mvccpb.KeyValue // the nearest entry ahead; nil: the queue is free
	seen  int64            // the latest revision at which ahead stood
	until time.Time        // the lock delay ends; zero: none has begun
}

func newEntry(q *Queue, lease *lease.Lease, value string) *entry {
	e := &entry{q: q, lease: lease, value: value}
	for {
		e.id = q.local.keys.take(lease)
		e.key = q.entries + e.id
		if q.local.keys.register(e) {
			return e
		}
	}
}

func absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}

// stands compares true as long as the entry kv stands; another entry at its key
// has another create revision.
func stands(kv *mvccpb.KeyValue) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(string(kv.Key)), "=", kv.CreateRevision)
}

// owned compares true as long as the entry stands.
func (e *entry) owned() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(e.key), "=", e.rev)
}

// advance moves the entry to a later stage.
func (e *entry) advance(to stage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stage = max(e.stage, to)
}

// create notes the create revision.
func (e *entry) create(rev int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rev, e.stage = rev, created
}

// place notes what stood ahead at revision; nil: nothing did.
func (e *entry) place(ahead *mvccpb.KeyValue, revision int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ahead, e.seen, e.stage = ahead, revision, max(e.stage, placed)
}

// delay begins the lock delay, or begins it again.
func (e *entry) delay() {
	until := time.Now().Add(e.q.sess.LockDelay())
	e.mu.Lock()
	defer e.mu.Unlock()
	e.until = until
}

// delayed is how long the lock delay still lasts. It counts only once the queue
// is free.
func (e *entry) delayed() time.Duration {
	if e.ahead != nil || e.until.IsZero() {
		return 0
	}
	return time.Until(e.until)
}

// finish ends the attempt. What may still stand or appear in etcd is the
// sweeper's from now on: an entry whose put was never answered, and one whose put
// was sent more than once.
func (e *entry) finish() {
	before := e.stage
	e.advance(ended)
	local := e.q.local
	switch {
	case before == ended:
	case e.lease.Lost() != nil: // the entry goes with the lease
		local.keys.unregister(e)
	case before == sent || e.openAt != 0 && e.openAt == e.lease.Gate():
		local.sweeper.add(e)
	default:
		local.keys.recycle(e)
	}
}
