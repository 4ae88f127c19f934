package queue

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/lease"
)

var (
	// errOccupied: the put was conditional on an empty queue, which it was not.
	errOccupied = errors.New("the queue is not empty")
	// errEntryGone: another client deleted the entry, or has written to it.
	errEntryGone = errors.New("the entry is no longer in the queue as it was put")
)

// stage is how far an attempt has come. It only grows.
type stage int

const (
	unsent  stage = iota // its put was not sent
	sent                 // its put was sent; the entry's create revision is unknown
	created              // the create revision is known
	placed               // the entry ahead is known, too
	held                 // the attempt became a hold
	ended                // the attempt is over; what it left open is the sweeper's
)

// entry is a key that one attempt puts into a queue, and what is known of it. One goroutine at a time works on it; a
// hand-off passes it to another caller. An attempt of a Set has an entry in each of several queues. Each is judged, and
// removed, by what stands in its own queue.
type entry struct {
	q      *Queue
	set    []*entry  // of the attempt, this one among them: one Txn puts them. Nil once they are removed one by one
	alone  [1]*entry // room for a set of one
	lease  *lease.Lease
	ticket *ticket // of the caller that the entry was put for
	key    string
	id     string // last part of key; empty if the key must not be used again
	value  string

	// requeued: during this attempt the session lost a lease, or another client deleted the entry. The attempt holds
	// only after the lock delay, since a holder that the earlier entry waited for may have been revoked, too.
	requeued bool

	token    fencing.Token // set with ahead
	position int64         // number of entries ahead when it was put
	revision int64         // of the store, at the latest read that saw the entry
	lookSent time.Time     // when that read, or the put, was sent

	others othersAhead // of the other mode
	permit *permit     // of a semaphore; otherwise nil

	unansweredAt int64 // gate of the latest unanswered copy of the put; 0 if all were answered
	removing     bool  // a removal was sent and not answered
	refused      bool  // the session key was put again since the attempt began; the sweeper's
	moved        bool  // it stands on a lease of its own: see MinHold

	// mu protects what follows from beforeRevoke, which reads it on another
	// goroutine. Only the working goroutine writes, so it reads without mu.
	mu         sync.Mutex
	stage      stage
	rev        int64            // create revision
	ahead      *mvccpb.KeyValue // the nearest entry ahead; nil if the queue is free
	aheadSeen  int64            // the latest revision at which ahead stood
	delayUntil time.Time        // end of the lock delay; zero if none has begun
	takenUntil time.Duration    // by the session's clock: end of MinHold; 0 if the name may be free
}

// log returns the session's logger with what identifies the entry.
func (e *entry) log() *slog.Logger {
	return e.q.host.Logger().With("queue", e.q.at.Kind, "name", e.q.at.Name, "key", e.key,
		"lease", holdfast.LeaseID(e.lease.ID()).String())
}

// reach moves the attempt to a later stage.
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
}

// setPlace records the create revision, and the entry that stood ahead at revision.
func (e *entry) setPlace(rev int64, ahead *mvccpb.KeyValue, revision int64, delay bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rev, e.revision = rev, revision
	e.setAheadLocked(ahead, revision, delay)
}

// setAhead records the entry that was ahead at revision, nil if there was none. With delay the lock delay begins, or
// begins again, in the same step: beforeRevoke may remove an entry that is placed and has no delay.
func (e *entry) setAhead(ahead *mvccpb.KeyValue, revision int64, delay bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.setAheadLocked(ahead, revision, delay)
}

func (e *entry) setAheadLocked(ahead *mvccpb.KeyValue, revision int64, delay bool) {
	e.ahead, e.aheadSeen, e.stage = ahead, revision, max(e.stage, placed)
	if delay {
		e.delayUntil = time.Now().Add(e.q.shared.lockDelay)
	}
}

// delayLeft is the rest of the lock delay, which counts only once the queue is free.
func (e *entry) delayLeft() time.Duration {
	if e.ahead != nil || e.delayUntil.IsZero() {
		return 0
	}
	return time.Until(e.delayUntil)
}

// modRevision is the mod revision of the entry as this session has put it.
func (e *entry) modRevision() int64 {
	if e.permit != nil && e.permit.mod != 0 {
		return e.permit.mod
	}
	return e.rev
}

// owned is true in a Txn while this entry exists. It compares the create revision, since a later entry may have the
// same key.
func (e *entry) owned() clientv3.Cmp { return createdAt(e.key, e.rev) }

// createdAt is true in a Txn while key has the value that was created at rev; with rev 0, while the key does not exist.
func createdAt(key string, rev int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", rev)
}

// removalCmps returns the comparisons under which the entry may be deleted. A permit may be at any time: the entry
// behind it knows by its mark, or by the lack of one, what it has to judge.
//
// An entry that never held may be deleted only while the entry ahead exists, or when the queue is free and no lock
// delay runs. Otherwise the waiter behind would take the deletion for a release and hold at once, although a revoked
// holder ahead of both may not have been told yet.
func (e *entry) removalCmps() []clientv3.Cmp {
	if e.stage == placed && e.ahead != nil && e.permit == nil {
		return []clientv3.Cmp{e.owned(), createdAt(string(e.ahead.Key), e.ahead.CreateRevision)}
	}
	return []clientv3.Cmp{e.owned()}
}

// removableNow returns removalCmps, or nil if the entry may not be deleted yet.
func (e *entry) removableNow() []clientv3.Cmp {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stage == held || e.stage == placed && e.delayLeft() <= 0 {
		return e.removalCmps()
	}
	return nil
}

// waiting returns the first entry of the set that is not at the front of its queue, or whose lock delay runs; nil if
// there is none.
func (e *entry) waiting() *entry {
	for _, m := range e.set {
		if m.stage < placed || m.ahead != nil || m.delayLeft() > 0 {
			return m
		}
	}
	return nil
}

// sawAll records that all entries of the set stood as they were put, by the reply to a request that was sent then.
func (e *entry) sawAll(sent time.Time) {
	for _, m := range e.set {
		m.lookSent = sent
	}
}

// lookIsOld reports whether the attempt must look at its entries again before it holds.
func (e *entry) lookIsOld() bool { return time.Since(e.lookSent) > e.q.lookLasts() }

// othersStand is true in a Txn while the other entries of the set exist as they were put.
func (e *entry) othersStand() []clientv3.Cmp {
	var cmps []clientv3.Cmp
	for _, m := range e.set {
		if m != e {
			cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(m.key), "=", m.rev))
		}
	}
	return cmps
}

// finish ends the attempt. If a copy of its put was not answered, or the entry may exist with an unknown revision, the
// sweeper takes over. The present gate does not tell whether the copy came too late: it may have been carried out after
// the entry was removed, and before the gate moved.
func (e *entry) finish() {
	before := e.stage
	e.reach(ended)
	shared := e.q.shared
	switch {
	case before == ended:
	case e.lease.Lost() != nil: // the entry expires with the lease
		shared.keys.unregister(e)
	case before == sent || e.unansweredAt != 0:
		shared.sweeper.add(e)
	case e.moved: // the entry stands at its key
		shared.keys.unregister(e)
	default:
		shared.keys.recycle(e)
	}
}

// untilLost returns a child of ctx that the loss of the lease cancels, as its cause.
func (e *entry) untilLost(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.lease.Context(), func() { cancel(e.lease.Lost()) })
	return ctx, func() { stop(); cancel(nil) }
}

// requestContext returns the context of a request about the entry. It has ctx's values and ends with the lease, or
// grace after ctx. A request that is cut off has an unknown outcome; one that is answered a moment later has not.
func (e *entry) requestContext(ctx context.Context, grace time.Duration) (context.Context, func()) {
	rctx, cancel := context.WithCancel(leaseContext{e.lease.Context(), ctx})
	stop := context.AfterFunc(ctx, func() {
		if grace > 0 {
			time.AfterFunc(grace, cancel)
		} else {
			cancel()
		}
	})
	return rctx, func() { stop(); cancel() }
}

// leaseContext is the context of a lease with the values of another context, such
// as its span and its credentials.
type leaseContext struct {
	context.Context
	values context.Context
}

// Value asks the lease's context first: package context looks there for the context to derive a child from.
func (c leaseContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}
