package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

var (
	// ErrOccupied is the error with Request.Try if the queue has a holder or waiters.
	ErrOccupied = errors.New("the queue is not empty")
	// ErrOwnSession is ErrOccupied by a goroutine of the same session. No request tells it, so its place names no holder.
	ErrOwnSession = fmt.Errorf("%w: a goroutine of this session holds it, or waits for it", ErrOccupied)
	// ErrCondition: Request.If was not true, so etcd has put no entry; or another client has deleted it since.
	ErrCondition = errors.New("the condition of the caller is not true in etcd")
	// ErrEntryGone: another client deleted the entry, or has written to it.
	ErrEntryGone = errors.New("the entry is no longer in the queue as it was put")
	// ErrRepeated: the entry and its claim are gone, and this session may have removed both.
	//
	//	rev 12  one removal deletes both; a proxy answers Canceled, and etcd's client sends it once more, unnoticed
	//	rev 12  the second copy finds neither, as if they had been deleted by hand
	ErrRepeated = fmt.Errorf("%w: the entry is gone; the client's KV, which the program has replaced, may have sent the "+
		"removal twice", holdfast.ErrOutcomeUnknown)
	// ErrInDelay is the error with Request.Try if the caller's context ended during the lock delay.
	ErrInDelay = errors.New("the last holder has gone without a release")
)

// attempt is one round of an acquisition, under one lease: an entry in each queue, put by one Txn, until they hold or
// are given up. One goroutine at a time works on it; a hand-off passes it to another caller.
type attempt struct {
	lease   *lease.Lease
	q       *Queue // of the first entry; only the attempt of a Set has more
	entries []*entry
	after   *entry // the put compares this entry, and removes it; or nil

	only entry // room for the entry of a lock: one allocation for both
	room [1]*entry

	revision int64         // of the store, at the latest look or put with all entries as they were put
	readSent time.Duration // when its request was sent, by the session's clock

	looks        int   // how many looks were answered
	told         bool  // OnWait has been told of the delay
	attaches     bool  // it puts no entry, and attaches one: see Attach
	unansweredAt int64 // gate of the latest unanswered copy of the put; 0 if all were answered
}

// newAttempt returns an attempt of the heads of some lines.
func newAttempt(heads []*caller, lease *lease.Lease) *attempt {
	a := &attempt{lease: lease, q: heads[0].q}
	a.entries = a.room[:0] // allocates for a Set only
	for _, c := range heads {
		e := a.newEntry(c.q)
		e.caller, e.Value = c, c.q.entryValue(c.request)
		a.entries = append(a.entries, e)
	}
	return a
}

// newEntry returns an entry of the attempt, with an unused key.
func (a *attempt) newEntry(q *Queue) *entry {
	e := &a.only
	if len(a.entries) > 0 {
		e = new(entry)
	}
	if q.At.Foreign && q.shared.isUnclaimed(q.At) {
		q = q.withoutClaims()
	}
	e.Queue, e.of, e.Lease = q, a, a.lease
	if q.limit != 0 {
		e.permit = &permit{e: e}
	}
	for {
		e.id = q.shared.keys.NewID(a.lease)
		e.Key, e.Claim = q.keys(e.id)
		e.home = e.Key
		if q.shared.keys.Register(e.home, a.lease, e) {
			return e
		}
	}
}

// Grant is an entry that holds. Its owner ends it once: by RemoveNow, by HandOff, or by LeaveLine and then Left or
// Remove. One goroutine at a time calls what changes a Grant.
type Grant = entry

// entry is a key in a queue, put by an attempt, and what is known of it. Callers get it as a Grant.
type entry struct {
	Queue  *Queue
	of     *attempt
	caller *caller
	entryKeys
	Lease   *lease.Lease   // of the attempt: the entry ends with it
	Value   string         // as it was put
	Created int64          // the create revision, of the claim as well; 0: not known
	Token   holdfast.Token // for fencing; 0 of readers and permits, who are not alone

	Granted
	removals
	wait

	mu    sync.Mutex // protects what follows. Only the working goroutine writes stage, and reads it without mu
	stage stage
	taken taken
}

// entryKeys are the keys of an entry.
type entryKeys struct {
	Key   string // of its turn, once a permit has become one
	Claim string // the key of its claim; empty without the right to it
	home  string // the first Key: leftovers knows the entry by it
	id    string // last part of Key; empty if the key must not be used again
}

// Granted is what was known of an entry when its attempt began to hold.
type Granted struct {
	Host             *lease.Host            // the session
	Modified         int64                  // the mod revision; of a waiting entry 0, unless it was put again
	AcquiredRevision int64                  // of the store, at the latest read of all entries of the set
	Stood            time.Duration          // when the request was sent by which the entry holds, by the session's clock
	Telemetry        *telemetry.Acquisition // measures the acquisition; nil for all entries of a set but the first
}

// removals is what is known of the removals of an entry.
type removals struct {
	removing bool // one was sent and not answered
	refused  bool // etcd refuses it
}

// stage is how far an entry has come. It only grows.
type stage int

const (
	unsent  stage = iota // its put was not sent
	sent                 // its put was sent; the create revision is unknown
	created              // the create revision is known
	placed               // what stands ahead is known, too
	ended                // the attempt is over; what it left open is the sweeper's
)

// taken is how an entry outlives its hold: see TakeFor.
type taken struct {
	until time.Duration // by the session's clock: the end; 0 without MinHold
	since time.Time     // the beginning, for people
	moved bool          // the entry stands on a lease of its own
}

// modRevision is the mod revision of the entry as this session has put it.
func (e *entry) modRevision() int64 { return cmp.Or(e.Modified, e.Created) }

// Is reports whether kv is the entry.
func (e *entry) Is(kv *mvccpb.KeyValue) bool { return kv != nil && kv.CreateRevision == e.Created }

// Holding is true in a Txn while the entry exists. It compares the create revision, since a later entry may have the
// same key.
func (e *entry) Holding() clientv3.Cmp { return createdAt(e.Key, e.Created) }

// Commit sends a Txn about the entry, perhaps with others of the session in one request.
func (e *entry) Commit(ctx context.Context, t requests.Txn) (requests.Reply, error) {
	return e.Queue.shared.commits.Commit(ctx, t)
}

// Retry calls op until it succeeds or fails for good, with the session's pauses, until ctx ends or the lease is lost.
// Each request of op has its own timeout.
func (e *entry) Retry(ctx context.Context, op func(ctx context.Context) error) error {
	return lease.RetryUnder(ctx, e.Queue.host.Env, e.Lease, op)
}

// PutValue replaces the value of an entry, and keeps its lease.
func PutValue(key, value string) clientv3.Op {
	return clientv3.OpPut(key, value, clientv3.WithIgnoreLease())
}

// Log is the session's logger with what identifies the entry.
func (e *entry) Log() *slog.Logger {
	return e.Queue.host.Logger.With("queue", string(e.Queue.At.Kind), "name", e.Queue.At.Name, "key", e.Key,
		"lease", names.Lease(e.Lease.ID()))
}

// say tells an observer of a step.
func (e *entry) say(a lease.Action, s lease.EntryStep) {
	s.Key, s.Created = e.Key, e.Created
	e.Lease.Say(lease.Step{Action: a, EntryStep: s})
}

// place records what stands ahead, as a reply at a revision has shown it.
func (e *entry) place(read int64, delays bool) {
	e.reach(placed)
	s := lease.EntryStep{Read: read, Delays: delays}
	if e.ahead != nil {
		s.Ahead, s.AheadCreated = string(e.ahead.Key), e.ahead.CreateRevision
	}
	e.say(lease.Judged, s)
}

// reach moves the entry to a later stage.
func (e *entry) reach(to stage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stage = max(e.stage, to)
}

// setCreated records the create revision.
func (e *entry) setCreated(rev int64) {
	e.Created = rev
	e.reach(created)
	lines := &e.Queue.shared.lines
	lines.mu.Lock()
	e.caller.rev = rev
	lines.mu.Unlock()
}

// setToken computes the token from the epoch, as the put has read it.
func (e *entry) setToken(epoch []*mvccpb.KeyValue) (err error) {
	if !e.Queue.Reader && e.permit == nil {
		e.Token, err = layout.Token(epoch, e.Created)
	}
	return err
}

// TakeFor makes the name stay taken for d from now on: until then the session deletes the entry only if its owner does.
// TakeFor(0) undoes it.
func (e *entry) TakeFor(d time.Duration) {
	until := e.Queue.host.Clock() + d
	e.mu.Lock()
	defer e.mu.Unlock()
	e.taken.until, e.taken.since = until, time.Now()
}

// TakenFor returns how long the name stays taken by TakeFor.
func (e *entry) TakenFor() time.Duration {
	e.mu.Lock()
	until := e.taken.until
	e.mu.Unlock()
	return max(0, until-e.Queue.host.Clock())
}

// TakenSince is when TakeFor was called.
func (e *entry) TakenSince() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.taken.since
}

// Taken returns the entries of a lost lease whose names stay taken: see TakeFor. Its caller reads and forgets them.
func Taken(host *lease.Host, l *lease.Lease) (taken []*Grant) {
	for _, of := range sharedBy(host).keys.Of(l, false) {
		if e := of.(*entry); e.TakenFor() > 0 {
			taken = append(taken, e)
		}
	}
	return taken
}

// Forget has the session not account for the entry any more: it was moved to another lease, or is gone.
func (e *entry) Forget() { e.Queue.shared.keys.Unregister(e.home) }
