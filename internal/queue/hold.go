package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/session"
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
	once   sync.Once // guards end
	cause  atomic.Pointer[error]

	joined func() // to be called when the end is recorded: Close waits for it

	auditor   fencing.Auditor // may be nil
	telemetry *telemetry.Acquisition
	since     time.Time // when it was granted

	modified atomic.Int64 // mod revision of the entry, as far as Update has seen; 0: no Update yet

	gone    chan struct{} // closed when the entry is out of etcd, or given up
	outcome error         // of that; read after gone
}

func newHold(ln *line, e *entry, revision int64, r Request) *Hold {
	h := &Hold{entry: e, line: ln, revision: revision, auditor: r.Auditor, telemetry: r.telemetry, since: time.Now(), gone: make(chan struct{})}
	h.recordGrant() // before anything can end it
	h.joined = e.q.sess.Base().Joining()
	h.ctx, h.cancel = context.WithCancelCause(e.lease.Context())
	ln.all.audit.add(h)
	var limit *time.Timer // last: it may end the hold at once
	if r.MaxHold > 0 {
		limit = time.AfterFunc(r.MaxHold, func() { h.end(h.lost(session.CauseMaxHold)) })
	}
	context.AfterFunc(h.ctx, func() {
		if limit != nil {
			limit.Stop()
		}
		// When the lease is lost, Check finds out and ends the hold.
		_ = h.Check()
	})
	return h
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

// Check judges now: nil, session.ErrSuspended, a *session.LostError, or
// session.ErrReleased. It allocates nothing while held.
func (h *Hold) Check() error {
	if cause := h.cause.Load(); cause != nil {
		return *cause
	}
	err := h.entry.lease.Check()
	if err == nil || errors.Is(err, session.ErrSuspended) {
		return err
	}
	var lost *session.LostError
	if errors.As(err, &lost) {
		h.end(lost.Of(h.entry.q.kind, h.entry.q.name, int64(h.entry.token)))
	}
	return *h.cause.Load()
}

// Context returns a child of ctx that is done with the hold, or, if strict, as
// soon as its session is suspended. The cause is Check's answer.
func (h *Hold) Context(ctx context.Context, strict bool) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhold := context.AfterFunc(h.ctx, func() { cancel(h.Check()) })
	unstrict := func() bool { return true }
	if strict {
		connected := h.entry.lease.ConnectedContext()
		unstrict = context.AfterFunc(connected, func() { cancel(context.Cause(connected)) })
	}
	return ctx, func() {
		unhold()
		unstrict()
		cancel(nil)
	}
}

// Release gives the hold back and waits until its entry is gone. nil: it is.
// *session.LostError: it had been lost. session.ErrOutcomeUnknown: ctx ended
// first, and the session goes on. With a dead ctx it waits for
// Options.CloseTimeout. Idempotent.
func (h *Hold) Release(ctx context.Context) (err error) {
	if ctx == nil {
		return &session.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	if h.Live() {
		measured := h.measureRelease(ctx)
		defer func() { measured(err) }()
		h.end(session.ErrReleased)
	}
	if cause := *h.cause.Load(); cause != session.ErrReleased {
		return cause
	}
	ctx, cancel := h.entry.q.sess.Base().Detached(ctx)
	defer cancel()
	select {
	case <-h.gone:
	case <-ctx.Done():
		// Both may be ready.
		select {
		case <-h.gone:
		default:
			return h.unknown(context.Cause(ctx))
		}
	}
	switch {
	case h.outcome == nil:
		return nil
	case errors.Is(h.outcome, session.ErrOutcomeUnknown):
		return h.unknown(h.outcome)
	case errors.Is(h.outcome, session.ErrLost):
		return h.outcome
	default:
		return fmt.Errorf("release %s %s (token %d): %w", h.entry.q.kind, session.Quote(h.entry.q.name), h.entry.token, h.outcome)
	}
}

func (h *Hold) unknown(err error) error {
	q := h.entry.q
	if !errors.Is(err, session.ErrOutcomeUnknown) {
		err = fmt.Errorf("%w: %w", session.ErrOutcomeUnknown, err)
	}
	return fmt.Errorf("release %s %s (token %d, lease %x, session %s): %w; its entry is removed as soon as etcd answers, or goes with the lease",
		q.kind, session.Quote(q.name), h.entry.token, int64(h.Lease()), q.sess.State(), err)
}

// explain turns what pass said into the loss behind it, where there is one.
func (h *Hold) explain(err error) error {
	lost := h.entry.lease.Lost()
	switch {
	case err == nil || errors.Is(err, session.ErrOutcomeUnknown):
		return err
	case lost != nil:
		return lost.Of(h.entry.q.kind, h.entry.q.name, int64(h.entry.token))
	case errors.Is(err, errEntryGone):
		return h.vanished(h.entry.lease.Context())
	default:
		return err
	}
}

// vanished is the loss of a hold whose entry is no longer there although the
// session knows of nothing: with its lease, or by itself? ctx ends with the
// lease.
func (h *Hold) vanished(ctx context.Context) *session.LostError {
	lease := h.entry.lease
	ctx, cancel := context.WithTimeout(ctx, h.entry.q.sess.Base().RetryPolicy().Attempt)
	defer cancel()
	resp, err := h.Client().TimeToLive(ctx, lease.ID())
	if err == nil && resp.TTL < 0 { // 0 is less than a second, on a lease that lives
		h.entry.q.sess.Base().LeaseGone(ctx, lease, nil)
	}
	// Another hold may have found it out before, and ended this request by it.
	if lost := lease.Lost(); lost != nil {
		return lost.Of(h.entry.q.kind, h.entry.q.name, int64(h.entry.token))
	}
	return h.lost(session.CauseEntryDeleted)
}

func (h *Hold) lost(cause session.Cause) *session.LostError {
	return &session.LostError{
		Kind: h.entry.q.kind, Name: h.entry.q.name, Lease: h.Lease(), Token: int64(h.entry.token), Cause: cause,
	}
}

// end ends the hold for good, with its first cause, and lets the next in line
// have its turn. It reports whether it was this call that has ended it.
func (h *Hold) end(cause error) (ended bool) {
	var at time.Time // set if this call has ended it and nothing else is to record that
	h.once.Do(func() {
		ended = true
		now := time.Now()
		h.cause.Store(&cause)
		h.cancel(cause)
		h.line.all.audit.forget(h)
		pass := func(context.Context) {
			h.outcome = h.explain(h.line.pass(h.entry))
			close(h.gone)
		}
		if !h.entry.q.sess.Base().Go(func(ctx context.Context) { pass(ctx); h.over(now) }) {
			pass(nil) // closed: the lease is lost, so this sends nothing
			at = now
		}
	})
	if !at.IsZero() {
		h.over(at) // not within once, which others wait for
	}
	return ended
}

// over is the last that is done for a hold, once.
func (h *Hold) over(at time.Time) {
	defer h.joined()
	h.recordEnd(at)
}

// Live reports whether the hold has not ended: held, or suspended.
func (h *Hold) Live() bool {
	err := h.Check()
	return err == nil || errors.Is(err, session.ErrSuspended)
}

// ReleaseQuietly is Release for work that is done. It returns the loss of a hold
// that was none any more when the work ended, also where only the release has
// found that out. What happens later is not the work's failure: an outcome that
// is not known yet is logged, and a lease may expire meanwhile.
func (h *Hold) ReleaseQuietly(ctx context.Context) *session.LostError {
	err := h.Release(ctx)
	if errors.Is(err, session.ErrOutcomeUnknown) {
		h.entry.q.sess.Logger().Warn("holdfast: the work is done, its release is not answered yet", "error", err)
		return nil
	}
	var lost *session.LostError
	if !errors.As(err, &lost) {
		return nil
	}
	if *h.cause.Load() == session.ErrReleased && (lost.Cause == session.CauseExpired || lost.Cause == session.CauseClosed) {
		return nil // on the way
	}
	return lost
}
