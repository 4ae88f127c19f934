package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/ahead"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
)

var (
	// ErrOccupied is the error with Request.Try if the queue has a holder or waiters.
	ErrOccupied = errors.New("the queue is not empty")
	// ErrUnconfirmed is the error with Request.Try if all entries in the queue are left over
	// from earlier attempts and holds of this session.
	ErrUnconfirmed = errors.New("etcd has not confirmed yet that an earlier entry of this session is gone; try again")
	// ErrEntryGone: another client deleted the entry, or has written to it.
	ErrEntryGone = errors.New("the entry is no longer in the queue as it was put")
	// ErrRepeated: the entry and its claim are gone, and it may have been this session that has removed both.
	//
	//	rev 12  one removal deletes both; a proxy answers Canceled, and etcd's client sends it once more, unnoticed
	//	rev 12  the second copy finds neither, as if they had been deleted by hand
	ErrRepeated = fmt.Errorf("%w: the entry is gone; the client's KV, which the program has replaced, may have sent the "+
		"removal twice", holdfast.ErrOutcomeUnknown)
	// ErrInDelay is the error with Request.Try if the caller's context ended during the lock delay of a holder that has
	// gone without a release.
	ErrInDelay = errors.New("the last holder has gone without a release")
)

// stage is how far an entry has come. It only grows.
type stage int

// taken is how an entry outlives its hold: see TakeFor.
type taken struct {
	until time.Duration // by the session's clock: the end; 0 if the name may be free
	since time.Time     // the beginning, for people
	moved bool          // the entry stands on a lease of its own
}

const (
	unsent  stage = iota // its put was not sent
	sent                 // its put was sent; the entry's create revision is unknown
	created              // the create revision is known
	placed               // what stands ahead is known, too
	held                 // the attempt became a hold
	ended                // the attempt is over; what it left open is the sweeper's
)

// entryKeys are the keys of an entry.
type entryKeys struct {
	key   string // of its turn, once a permit has become one
	claim string // the key of its claim; empty without the right to it
	home  string // the first key: leftovers knows the entry by it
	id    string // last part of key; empty if the key must not be used again
}

// entry is a key that an attempt puts into a queue, and what is known of it.
type entry struct {
	q      *Queue
	of     *attempt
	ticket *ticket // of the caller that the entry was put for; nil if the sweeper has found it
	entryKeys
	value string
	token holdfast.Token // for fencing; 0 of a reader, which is not alone, and of a permit

	removing bool // a removal was sent and not answered
	deleted  bool // another client has deleted the entry: the claim stood alone

	// mu protects what follows from Taken, which reads it on another
	// goroutine. Only the working goroutine writes, so it reads without mu.
	mu    sync.Mutex
	stage stage
	rev   int64 // create revision
	wait  wait
	taken taken
}

// Log is the session's logger with what identifies the entry.
func (e *entry) Log() *slog.Logger {
	return e.q.host.Logger().With("queue", string(e.q.At.Kind), "name", e.q.At.Name, "key", e.key,
		"lease", names.Lease(e.of.lease.ID()))
}

// say tells an observer of a step.
func (e *entry) say(a lease.Action, s lease.EntryStep) {
	s.Key, s.Created = e.key, e.rev
	e.of.lease.Say(lease.Step{Action: a, EntryStep: s})
}

// place records what stands ahead, as a reply at a revision has shown it.
func (e *entry) place(read int64, delays bool) {
	e.reach(placed)
	s := lease.EntryStep{Read: read, Delays: delays}
	if ahead := e.wait.ahead; ahead != nil {
		s.Ahead, s.AheadCreated = string(ahead.Key), ahead.CreateRevision
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
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rev, e.stage = rev, created
	if t := e.ticket; t != nil {
		t.q.shared.mu.Lock()
		t.rev = rev
		t.q.shared.mu.Unlock()
	}
}

// takeToken computes the token from the epoch that was read with the put.
func (e *entry) takeToken(epoch []*mvccpb.KeyValue) (err error) {
	if !e.q.Reader {
		e.token, err = layout.Token(epoch, e.rev)
	}
	return err
}

// modRevision is the mod revision of the entry as this session has put it.
func (e *entry) modRevision() int64 {
	if p := e.wait.permit; p != nil && p.mod != 0 {
		return p.mod
	}
	return e.rev
}

// owned is true in a Txn while this entry exists. It compares the create revision, since a later entry may have the
// same key.
func (e *entry) owned() clientv3.Cmp { return ahead.CreatedAt(e.key, e.rev) }

// PutValue replaces the value of the entry with that key, which keeps its lease.
func PutValue(key, value string) clientv3.Op {
	return clientv3.OpPut(key, value, clientv3.WithIgnoreLease())
}

// finish ends what the attempt has to do with the entry. If a copy of its put was not answered, or the entry may exist
// with an unknown revision, the sweeper takes over. The present gate does not tell whether the copy came too late: it
// may have been carried out after the entry was removed, and before the gate moved.
func (e *entry) finish() {
	before := e.stage
	e.reach(ended)
	shared := e.q.shared
	switch {
	case before == ended:
	case e.of.lease.Lost() != nil: // the entry expires with the lease
		shared.keys.Unregister(e.home)
	case before == sent || e.of.unansweredAt != 0:
		shared.sweeper.Add(suspect{e})
	case e.taken.moved: // the entry stands at its key
		shared.keys.Unregister(e.home)
	default:
		shared.keys.Recycle(e.home, e.id)
	}
}

// retry calls op until it succeeds or fails for good, with the session's pauses, until ctx ends or the lease is lost.
// Each request of op has its own timeout.
func (e *entry) retry(ctx context.Context, op func(ctx context.Context) error) error {
	return lease.RetryUnder(ctx, e.q.host, e.of.lease, op)
}

// takenFor is the rest of MinHold.
func (e *entry) takenFor() time.Duration {
	e.mu.Lock()
	until := e.taken.until
	e.mu.Unlock()
	if until == 0 {
		return 0
	}
	return max(0, until-e.q.host.Clock()())
}
