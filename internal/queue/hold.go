package queue

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// Hold is one acquisition, from the moment it is granted to its end. Locks and
// terms are made of it.
//
// It ends once, in stop: by a release, by the loss of its lease, because its entry
// was deleted, or after MaxHold. The first cause stays. Of an acquisition of several
// names each has a Hold: see Set.
type Hold struct {
	entry     *entry
	line      *line
	revision  int64                  // of the store, at the latest read that verified an entry
	auditor   audit.Auditor          // may be nil
	telemetry *telemetry.Acquisition // of a Set only the first hold has one
	joined    func()                 // must be called when the hold is finalized: Close waits for it

	*life
	ownLife life     // of a hold that is not in a Set, and of a Set's first
	alone   [1]*Hold // room for a set of one

	modified atomic.Int64 // the newest mod revision of the entry whose value is known; 0: the create revision
	kept     kept         // the entry, after the hold was ended by a Notice

	removed chan struct{} // closed when the entry is out of etcd, or given up
	outcome error         // of the removal; set before removed is closed
}

// life is the time from the grant to the end. The holds of a Set have one in common: they
// end together, with one cause.
type life struct {
	holds []*Hold
	since time.Time

	stopped sync.Once             // runs the body of stop
	cause   atomic.Pointer[error] // of the end; nil while held
	until   time.Time             // the end; written by stop
	idle    *idle                 // of MaxIdle; nil without it

	mu       sync.Mutex // protects what follows
	ended    bool       // done is closed, contexts are canceled
	done     chan struct{}
	contexts map[*context.CancelCauseFunc]struct{} // of the contexts that Context has made
	limit    *time.Timer                           // of MaxHold
}

// newHolds makes the holds of a set of verified entries, whose turns it was.
func newHolds(turns []turn, set []*entry) []*Hold {
	first := newHold(turns[0].line, set[0])
	holds := append(first.alone[:0], first) // allocates for a Set only
	for i, e := range set[1:] {
		holds = append(holds, newHold(turns[1+i].line, e))
	}
	verified := int64(0)
	for i, e := range set {
		e.reach(held)
		turns[i].line.heldUnder = e.lease
		verified = max(verified, e.revision)
	}
	first.prepare(holds)
	for i, h := range holds {
		h.revision = verified
		if mod := h.entry.modRevision(); mod != h.entry.rev {
			h.modified.Store(mod)
		}
		if d := h.entry.ticket.request.MinHold; d > 0 {
			h.entry.takeFor(d)
		}
		h.recordGrant() // before anything can end the hold
		h.joined = h.entry.q.host.Joining()
		turns[i].line.holds(h)
	}
	first.begin()
	return holds
}

func newHold(ln *line, e *entry) *Hold {
	r := e.ticket.request
	return &Hold{
		entry: e, line: ln, auditor: r.Auditor, telemetry: r.telemetry, removed: make(chan struct{}),
	}
}

// prepare gives some holds one life.
func (h *Hold) prepare(holds []*Hold) {
	common := &h.ownLife
	common.holds, common.since = holds, time.Now()
	for _, each := range holds {
		each.life = common
	}
	h.limitIdle(h.entry.ticket.request.MaxIdle)
}

// begin begins the life of h: from now on, its holds end with their lease.
func (h *Hold) begin() {
	h.line.shared.poll.add(h.holds)
	h.startTimers(h.entry.ticket.request.MaxHold)
}

// startTimers has the hold end after maxHold, unless that is 0, and when its work is idle.
func (h *Hold) startTimers(maxHold time.Duration) {
	h.mu.Lock() // a timer may fire before it is assigned
	defer h.mu.Unlock()
	if h.ended {
		return
	}
	if maxHold > 0 {
		h.limit = time.AfterFunc(maxHold, func() { h.endAndRelease(h.lost(holdfast.CauseMaxHold)) })
	}
	if h.idle != nil {
		h.idle.timer = time.AfterFunc(h.idle.most, h.lookIdle)
	}
}

// Token is the fencing token of the hold.
func (h *Hold) Token() fencing.Token { return h.entry.token }

// AcquiredRevision is the store's revision at the read that verified the hold.
func (h *Hold) AcquiredRevision() int64 { return h.revision }

// Lease is the ID of the lease that the entry is bound to.
func (h *Hold) Lease() clientv3.LeaseID { return h.entry.lease.ID() }

// Key is the entry's key in etcd.
func (h *Hold) Key() string { return h.entry.key }

// IsOwner is true in a Txn as long as the entry stands.
func (h *Hold) IsOwner() clientv3.Cmp { return h.entry.owned() }

// Owned is true in a Txn as long as all entries of the hold and of its Set stand, its own first.
func (h *Hold) Owned() []clientv3.Cmp {
	cmps := []clientv3.Cmp{h.IsOwner()}
	for _, each := range h.holds {
		if each != h {
			cmps = append(cmps, each.IsOwner())
		}
	}
	return cmps
}

// Client is the session's client.
func (h *Hold) Client() *clientv3.Client { return h.entry.q.host.Client() }

// Queue is the queue whose front the hold is.
func (h *Hold) Queue() *Queue { return h.entry.q }

// Done returns a channel that is closed when the hold has ended.
func (h *Hold) Done() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done == nil {
		h.done = make(chan struct{})
		if h.ended {
			close(h.done)
		}
	}
	return h.done
}

// Check judges now: nil, holdfast.ErrSuspended, a *holdfast.LostError, or
// holdfast.ErrReleased. It allocates nothing while held.
func (h *Hold) Check() error {
	if cause := h.cause.Load(); cause != nil {
		return *cause
	}
	err := h.entry.lease.Check()
	if err == nil || errors.Is(err, holdfast.ErrSuspended) {
		if h.idle == nil || !h.idle.over() {
			return err
		}
		h.endIdle()
		return *h.cause.Load()
	}
	var lost *holdfast.LostError
	if errors.As(err, &lost) {
		h.endAndRelease(h.named(lost))
	}
	return *h.cause.Load()
}

// Live reports whether the hold has not ended: it is held, or suspended.
func (h *Hold) Live() bool {
	err := h.Check()
	return err == nil || errors.Is(err, holdfast.ErrSuspended)
}

// Context returns a child of ctx that is canceled when the hold ends and, if
// strict, when its session is suspended. The cause is Check's answer. If that is so
// already, the context is done when Context returns.
func (h *Hold) Context(ctx context.Context, strict bool) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	err := h.Check() // which ends the hold if its lease is lost
	if !h.addContext(&cancel) {
		cancel(h.Check())
		return ctx, func() {}
	}
	stopStrict := func() bool { return true }
	if strict && errors.Is(err, holdfast.ErrSuspended) {
		cancel(err)
	} else if strict {
		connected := h.entry.lease.ConnectedContext()
		stopStrict = context.AfterFunc(connected, func() { cancel(context.Cause(connected)) })
	}
	return ctx, func() {
		stopStrict()
		h.removeContext(&cancel)
		cancel(nil)
	}
}

// addContext has stop call cancel. It reports false if the hold has ended.
func (h *Hold) addContext(cancel *context.CancelCauseFunc) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return false
	}
	if h.contexts == nil {
		h.contexts = make(map[*context.CancelCauseFunc]struct{})
	}
	h.contexts[cancel] = struct{}{}
	return true
}

func (h *Hold) removeContext(cancel *context.CancelCauseFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.contexts, cancel)
}

// stop ends the hold, and those of its Set, with its cause, once. It returns true to the
// call that has ended it, which must then remove the entries.
//
// When stop returns, to any of its callers, every context of the hold is done. So
// the entry is never removed while work still runs that believes it holds.
func (h *Hold) stop(cause error) (ended bool) {
	h.stopped.Do(func() {
		ended = true
		h.until = time.Now()
		for _, each := range h.holds {
			if !errors.Is(cause, holdfast.ErrReleased) && !errors.Is(cause, holdfast.ErrClosed) {
				each.entry.dropMinHold()
			}
		}
		h.cause.Store(&cause)
		for cancel := range h.takeContexts() {
			(*cancel)(cause)
		}
		if !keepsEntry(cause) {
			h.line.shared.poll.remove(h.holds)
		}
	})
	return ended
}

// takeContexts closes Done and returns the contexts to cancel. No more are added.
func (h *Hold) takeContexts() map[*context.CancelCauseFunc]struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.limit != nil {
		h.limit.Stop()
	}
	if h.idle != nil && h.idle.timer != nil {
		h.idle.timer.Stop()
	}
	if h.done != nil {
		close(h.done)
	}
	contexts := h.contexts
	h.ended, h.contexts = true, nil
	return contexts
}

// endAndRelease ends the hold, and removes its entry on a goroutine of the session, with
// those of its Set. It reports whether it was this call that has ended it.
func (h *Hold) endAndRelease(cause error) (ended bool) {
	if ended = h.stop(cause); ended {
		for _, each := range h.holds {
			each.removeInBackground()
		}
	}
	return ended
}

// EndStale ends the hold because etcd has refused a write that compared its entry.
// It is called through internal/stale. The refusal does not say whether the lease
// is gone, too, so etcd is asked afterwards.
func (h *Hold) EndStale() {
	if h.endAndRelease(h.lossOfEntry(holdfast.CauseEntryDeleted)) {
		h.line.shared.poll.checkLease(h.entry.lease)
	}
}

// lost returns the loss of this hold, by a cause that its lease does not share.
func (h *Hold) lost(cause holdfast.Cause) *holdfast.LostError {
	return h.named(&holdfast.LostError{Lease: holdfast.LeaseID(h.Lease()), Cause: cause})
}

// named returns a copy of a loss that names this hold. In the set of a tree lock, or of a Downgradable, all holds have
// the name of the first: what its caller has asked for.
func (h *Hold) named(lost *holdfast.LostError) *holdfast.LostError {
	of := h.entry
	if first := h.holds[0].entry; of.q.at.Kind == "tree" || of.q.at.Name == first.q.at.Name {
		of = first
	}
	e := *lost
	e.Kind, e.Name, e.Token = of.q.at.Kind, of.q.at.Name, int64(of.token)
	return &e
}

// lossOfEntry returns the loss of a hold whose entry is no longer in etcd: that of
// its lease, if that is known to be lost, or else one with cause.
func (h *Hold) lossOfEntry(cause holdfast.Cause) *holdfast.LostError {
	if lost := h.entry.lease.Lost(); lost != nil {
		return h.named(lost)
	}
	return h.lost(cause)
}
