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

// Hold is one acquisition, from the verified entry to its end. Locks and terms
// are made of it. Every way it can end — released, lease lost, entry deleted,
// held too long — goes through end, once.
type Hold struct {
	entry    *entry
	line     *line
	revision int64

	ctx    context.Context // done at the end; a child of the lease's
	cancel context.CancelCauseFunc
	once   sync.Once // guards stop
	cause  atomic.Pointer[error]
	unbind atomic.Pointer[func()] // calls off what would end the hold; nil until newHold has set that up

	mu       sync.Mutex                            // protects contexts and ended
	contexts map[*context.CancelCauseFunc]struct{} // of the contexts made by Context
	ended    bool                                  // contexts are cancelled; no more are added

	joined func() // to be called when the end is recorded: Close waits for it

	auditor   audit.Auditor // may be nil
	telemetry *telemetry.Acquisition
	since     time.Time // when it was granted
	until     time.Time // when it ended; written by stop

	modified atomic.Int64 // mod revision of the entry, as far as Update and sinceNoter have seen; 0: neither yet

	gone    chan struct{} // closed when the entry is out of etcd, or given up
	outcome error         // of that; read after gone
}

func newHold(ln *line, e *entry, revision int64, r Request) *Hold {
	h := &Hold{entry: e, line: ln, revision: revision, auditor: r.Auditor, telemetry: r.telemetry, since: time.Now(), gone: make(chan struct{})}
	h.recordGrant() // before anything can end it
	h.joined = e.q.sess.Joining()
	h.ctx, h.cancel = context.WithCancelCause(e.lease.Context())
	ln.all.audit.add(h)
	h.bind(r.MaxHold)
	return h
}

// bind has the hold end with its lease, and after maxHold if that is set.
func (h *Hold) bind(maxHold time.Duration) {
	unwatch := context.AfterFunc(h.entry.lease.Context(), func() { _ = h.Check() }) // which finds out, and ends it
	var limit *time.Timer
	if maxHold > 0 {
		limit = time.AfterFunc(maxHold, func() { h.end(h.lost(holdfast.CauseMaxHold)) })
	}
	unbind := func() {
		unwatch()
		if limit != nil {
			limit.Stop()
		}
	}
	h.unbind.Store(&unbind)
	if h.cause.Load() != nil {
		unbind() // it has ended meanwhile
	}
}

// Token is the fencing token of the hold.
func (h *Hold) Token() fencing.Token { return h.entry.token }

// AcquiredRevision is the store's revision at the read that verified the hold.
func (h *Hold) AcquiredRevision() int64 { return h.revision }

// Lease is the ID of the lease the entry is bound to.
func (h *Hold) Lease() clientv3.LeaseID { return h.entry.lease.ID() }

// Key is the entry's key in etcd.
func (h *Hold) Key() string { return h.entry.key }

// IsOwner compares true in a Txn as long as the entry stands.
func (h *Hold) IsOwner() clientv3.Cmp { return h.entry.owned() }

// Client is the session's client.
func (h *Hold) Client() *clientv3.Client { return h.entry.q.sess.Client() }

// Queue is the queue the hold is at the front of.
func (h *Hold) Queue() *Queue { return h.entry.q }

// Done is closed when the hold has ended.
func (h *Hold) Done() <-chan struct{} { return h.ctx.Done() }

// Check judges now: nil, holdfast.ErrSuspended, a *holdfast.LostError, or
// holdfast.ErrReleased. It allocates nothing while held.
func (h *Hold) Check() error {
	if cause := h.cause.Load(); cause != nil {
		return *cause
	}
	err := h.entry.lease.Check()
	if err == nil || errors.Is(err, holdfast.ErrSuspended) {
		return err
	}
	var lost *holdfast.LostError
	if errors.As(err, &lost) {
		h.end(h.named(lost))
	}
	return *h.cause.Load()
}

// Context returns a child of ctx that is done with the hold, or, if strict, as
// soon as its session is suspended. The cause is Check's answer. If that is so
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

// takeContexts returns the contexts to cancel; no more are added.
func (h *Hold) takeContexts() map[*context.CancelCauseFunc]struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	contexts := h.contexts
	h.ended, h.contexts = true, nil
	return contexts
}

func (h *Hold) lost(cause holdfast.Cause) *holdfast.LostError {
	return &holdfast.LostError{
		Kind: h.entry.q.kind, Name: h.entry.q.name, Lease: holdfast.LeaseID(h.Lease()), Token: int64(h.entry.token), Cause: cause,
	}
}

// named returns the loss of the lease as that of this hold.
func (h *Hold) named(lost *holdfast.LostError) *holdfast.LostError {
	e := *lost
	e.Kind, e.Name, e.Token = h.entry.q.kind, h.entry.q.name, int64(h.entry.token)
	return &e
}

// entryGone is the loss of a hold whose entry is not in etcd any more: that of
// its lease, if that is known to be lost already.
func (h *Hold) entryGone(cause holdfast.Cause) *holdfast.LostError {
	if lost := h.entry.lease.Lost(); lost != nil {
		return h.named(lost)
	}
	return h.lost(cause)
}

// EndStale ends the hold because etcd has refused a write that compared its
// entry. It is the hook of internal/stale. The refusal does not say whether the
// lease is gone too, so that is asked for afterwards.
func (h *Hold) EndStale() {
	if h.end(h.entryGone(holdfast.CauseEntryDeleted)) {
		h.line.all.audit.askFor(h.entry.lease)
	}
}

// end ends the hold, and lets the next in line have its turn, on a goroutine of
// the session. It reports whether it was this call that has ended it.
func (h *Hold) end(cause error) (ended bool) {
	if ended = h.stop(cause); ended {
		h.leaveLater()
	}
	return ended
}

// stop ends the hold for good, with its first cause. When it returns, whether to
// the first caller or to another, every context of the hold is done: so the
// entry is never removed while work still believes that it holds. If stop
// returns true, the caller must remove the entry.
func (h *Hold) stop(cause error) (ended bool) {
	h.once.Do(func() {
		ended = true
		h.until = time.Now()
		h.cause.Store(&cause)
		if unbind := h.unbind.Load(); unbind != nil {
			(*unbind)()
		}
		for cancel := range h.takeContexts() {
			(*cancel)(cause)
		}
		h.cancel(cause)
		h.line.all.audit.forget(h)
	})
	return ended
}

// Live reports whether the hold has not ended: held, or suspended.
func (h *Hold) Live() bool {
	err := h.Check()
	return err == nil || errors.Is(err, holdfast.ErrSuspended)
}
