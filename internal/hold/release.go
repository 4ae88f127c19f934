package hold

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// Release ends the hold and waits until its entry is gone or, before MinHold has passed, on a lease of its own. nil: it
// is. *holdfast.LostError: the hold had been lost before. holdfast.ErrOutcomeUnknown: ctx ended first, and the session
// goes on removing the entry; or queue.ErrRepeated. With a ctx that is dead, or of the hold, Release waits
// for the session's CloseTimeout. It is idempotent.
func (h *Hold) Release(ctx context.Context) (err error) {
	if ctx == nil {
		return &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	h.released.give(&h.mu) // also after a loss: the work is over, see Work
	if h.Live() {
		var end func(error)
		ctx, end = h.telemetry.Release(ctx)
		defer func() { end(err) }()
	}
	ended := h.stop(holdfast.ErrReleased)
	// After stop, because ctx may be derived from one of the hold's own contexts.
	ctx, cancel := h.host.Detached(ctx)
	defer cancel()
	switch {
	case keepsEntry(*h.cause.Load()): // the hold has ended before
		h.removeKept()
		for _, each := range h.holds { // another call may be removing some of them
			each.removal.leave(ctx)
		}
	case !ended: // another call has ended the hold, and removes the entries
	case h.request.MinHold > 0 && h.grant.TakenFor() > 0:
		h.removal.stayTaken()
	case h.removeNow(ctx):
		return nil
	default: // another goroutine waits in the line, or the removal got no reply
		h.removeEach()
	}
	if cause := *h.cause.Load(); !errors.Is(cause, holdfast.ErrReleased) {
		return cause
	}
	for _, each := range h.holds {
		if failed := each.removal.await(ctx); err == nil {
			err = failed
		}
	}
	return err
}

// endAndRelease ends the holds, and removes their entries on goroutines of the session. It reports whether it was this
// call that has ended them.
func (l *life) endAndRelease(cause error) (ended bool) {
	if ended = l.stop(cause); ended {
		l.removeEach()
	}
	return ended
}

// removeEach removes the entries, each on a goroutine of the session.
func (l *life) removeEach() {
	for _, each := range l.holds {
		each.removal.inBackground()
	}
}

// keepsEntry reports whether a hold leaves its entry to Release when it ends with that cause.
func keepsEntry(cause error) bool {
	if errors.Is(cause, holdfast.ErrReleased) { // the usual end: nothing is allocated for it
		return false
	}
	var lost *holdfast.LostError
	return errors.As(cause, &lost) && (lost.Cause == holdfast.CauseKicked || lost.Cause == holdfast.CauseRemoved)
}

// removeNow removes the entries of released holds by one Txn, and reports whether that succeeded. If not, each is to be
// removed by itself.
func (l *life) removeNow(ctx context.Context) bool {
	grants := make([]*queue.Grant, 0, 1) // allocates for a Set only
	for _, each := range l.holds {
		grants = append(grants, each.grant)
	}
	if queue.RemoveNow(ctx, grants, nil) != nil {
		return false
	}
	for _, each := range l.holds {
		each.removal.wasRemoved()
	}
	return true
}

// ReleaseAfterWork is Release for work that has finished. It returns the loss, if the hold was already lost when the
// work ended, even if only the release reveals it. What happens later is no failure of the work.
func (h *Hold) ReleaseAfterWork(ctx context.Context) *holdfast.LostError {
	err := h.Release(ctx)
	if errors.Is(err, holdfast.ErrOutcomeUnknown) {
		h.host.Logger.Warn("holdfast: work finished, but etcd has not confirmed the release", "error", err)
		return nil
	}
	return h.lossIn(err)
}

// lossIn returns the loss that err tells, or nil. A lease that this process gave up after the release is no loss.
func (l *life) lossIn(err error) (lost *holdfast.LostError) {
	// The work ended under the lock, if only this process has given the lease up since:
	//
	//	0 s   the work returns, and the removal is sent. No member replies, not even to renewals
	//	13 s  the lease is no longer trusted. Etcd still had it when the work ended
	if errors.As(err, &lost) && errors.Is(*l.cause.Load(), holdfast.ErrReleased) &&
		(lost.Cause == holdfast.CauseExpired || lost.Cause == holdfast.CauseClosed) {
		return nil
	}
	return lost
}

// removal is how the entry leaves etcd after the end of its hold.
type removal struct {
	hold     *Hold
	joined   func()        // must be called when the end is recorded: Close waits for it
	done     chan struct{} // closed when the entry is out of etcd, or given up
	outcome  error         // set before done is closed
	detached bool          // the entry stands, and a ticket names it; set before done is closed
}

// wasRemoved is finalize for a hold whose entry its caller has removed, or detached.
func (r *removal) wasRemoved() {
	close(r.done) // no error is the outcome
	// An auditor may be slow, and the caller does not wait for it.
	if !r.hold.audited() {
		r.recordEnd()
		return
	}
	r.onSession(r.recordEnd)
}

// inBackground removes the entry, or hands it off to the next goroutine in the line, on a goroutine of the session.
func (r *removal) inBackground() {
	r.onSession(func() { r.finalize(r.hold.grant.HandOff()) })
}

// onSession runs f on a goroutine of the session. f calls joined.
func (r *removal) onSession(f func()) {
	if !r.hold.host.Go(func(context.Context) { f() }) {
		// Closed: f sends nothing. It may call an auditor, and the caller has other holds to end and both leases to revoke.
		go f() // Close joins it by joined, unless the hold began after Close
	}
}

// finalize records with what error the entry was removed, wakes Release, and reports the end of the hold.
func (r *removal) finalize(err error) {
	r.outcome = r.explain(err)
	close(r.done)
	r.recordEnd() // last: an auditor may be slow, and neither the caller nor the next holder waits for it
}

// await waits until the entry of a released hold is removed, or ctx ends, and returns what Release does.
func (r *removal) await(ctx context.Context) error {
	r.leave(ctx)
	select {
	case <-r.done: // perhaps both were ready
		return r.told(r.outcome)
	default:
		return r.told(r.explain(fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, retry.OfCaller(ctx, context.Cause(ctx)))))
	}
}

// leave waits until the entry is removed, or ctx ends.
func (r *removal) leave(ctx context.Context) {
	select {
	case <-r.done:
	case <-ctx.Done():
	}
}

// told turns the outcome of the removal into the error of Release, for people.
func (r *removal) told(outcome error) error {
	h := r.hold
	switch {
	case errors.Is(outcome, holdfast.ErrOutcomeUnknown):
	case outcome == nil || errors.Is(outcome, holdfast.ErrLost):
		return outcome
	default:
		return fmt.Errorf("release %s (%skey %s): %w", h.Queue(), h.tokenText(), names.Quote(h.Key()), outcome)
	}
	next := "the session removes the entry once etcd answers, or it expires with the lease that it is on"
	switch {
	case errors.Is(outcome, queue.ErrRepeated):
		next = "if it did not, another client had deleted the entry, perhaps before the work was done"
	case h.grant.TakenFor() > 0:
		next = "the session keeps the name taken until MinHold has passed, as long as its lease lives"
	}
	return fmt.Errorf("release %s (%slease %x, session %s): %w; %s",
		h.Queue(), h.tokenText(), int64(h.Lease()), h.host.State(), outcome, next)
}

// recordEnd reports the end of the hold to its auditor and to telemetry, when the entry is gone or given up.
func (r *removal) recordEnd() {
	defer r.joined()
	h := r.hold
	h.begun.Wait()               // the holds may have ended meanwhile: Granted comes before Lost
	held := h.until.Sub(h.since) // by the monotonic clock
	end := *h.cause.Load()
	if errors.Is(end, holdfast.ErrReleased) {
		end = r.outcome
	}
	switch lost := h.lossIn(end); {
	case lost != nil: // if there is no auditor, as a warning in the log
		h.tell(audit.Record{Event: audit.Lost, At: h.until, Held: held, Err: lost})
		h.telemetry.Lost(held, lost.Cause.String(), lost.Since)
		return
	case !h.audited():
	case r.detached:
		h.tell(audit.Record{Event: audit.Detached, At: h.until, Held: held})
	default:
		takenFor := h.request.MinHold
		if h.request.attached.IsZero() { // otherwise MinHold counts from the release: see stop
			takenFor = max(0, takenFor-held)
		}
		h.tell(audit.Record{Event: audit.Released, At: h.until, Held: held, Err: r.outcome, TakenFor: takenFor})
	}
	h.telemetry.Released(held)
}
