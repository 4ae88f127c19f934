package hold

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/queue"
)

// removal is how the entry of a hold that has ended leaves etcd.
type removal struct {
	hold    *Hold
	joined  func()        // must be called when the end is recorded: Close waits for it
	done    chan struct{} // closed when the entry is out of etcd, or given up
	outcome error         // set before done is closed
	instead *removal      // the one that the entry leaves by; nil: this one; set before done is closed

	// Of an entry that outlives its hold:
	taken   atomic.Bool // it is being removed
	bounded atomic.Bool // it will be, without Release
}

// wasRemoved finalizes a hold whose entry its releasing caller has removed.
func (r *removal) wasRemoved() {
	close(r.done)
	rec := recorder{r.hold}
	// An auditor may be slow, and the caller does not wait for it.
	if !rec.audited() || !rec.host.Go(func(context.Context) { rec.recordEnd() }) { // joined by Close
		rec.recordEnd()
	}
}

// inBackground removes the entry, or hands it off to the next goroutine in
// the line, on a goroutine of the session, which Close joins.
func (r *removal) inBackground() {
	remove := func(context.Context) { r.finalize(r.hold.grant.HandOff()) }
	if !r.hold.host.Go(remove) {
		remove(nil) // closed: the lease is lost, so this sends nothing
	}
}

// finalize records with what error the entry was removed, wakes Release, and reports the end of the hold.
func (r *removal) finalize(err error) {
	r.outcome = r.explain(err)
	close(r.done)
	recorder{r.hold}.recordEnd()
}

// await waits until the entry of a released hold is removed, or ctx ends, and
// returns what Release does.
func (r *removal) await(ctx context.Context) error {
	select {
	case <-r.done:
	case <-ctx.Done():
	}
	select {
	case <-r.done: // perhaps both were ready
		if r.instead != nil {
			return r.instead.await(ctx)
		}
		return r.err()
	default:
	}
	if lost := r.lossBefore(); lost != nil {
		return lost
	}
	r.hold.grant.CallerReturned()
	return r.unknown(context.Cause(ctx))
}

// leave waits until the entry is removed, or ctx ends.
func (r *removal) leave(ctx context.Context) {
	select {
	case <-r.done:
	case <-ctx.Done():
		r.hold.grant.CallerReturned()
	}
}

// err is what Release returns for the outcome.
func (r *removal) err() error {
	switch h := r.hold; {
	case r.outcome == nil:
		return nil
	case errors.Is(r.outcome, holdfast.ErrOutcomeUnknown):
		return r.unknown(r.outcome)
	case errors.Is(r.outcome, holdfast.ErrLost):
		return r.outcome
	case errors.Is(r.outcome, queue.ErrEntryGone): // of a hold whose loss was known before: see explain
		return *h.cause.Load()
	default:
		return fmt.Errorf("release %s (%skey %s): %w", h.Queue(), h.tokenText(), names.Quote(h.Key()), r.outcome)
	}
}

func (r *removal) unknown(err error) error {
	h := r.hold
	if !errors.Is(err, holdfast.ErrOutcomeUnknown) {
		err = fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
	}
	next := "the session removes the entry once etcd answers, or it expires with the lease"
	if h.grant.TakenFor() > 0 {
		next = "the session keeps the name taken until MinHold has passed, as long as its lease lives"
	}
	return fmt.Errorf("release %s (%slease %x, session %s): %w; %s",
		h.Queue(), h.tokenText(), int64(h.Lease()), h.host.State(), err, next)
}

// explain turns the error of the removal of a released entry into the loss that
// caused it, if there is one.
func (r *removal) explain(err error) error {
	h := r.hold
	if err == nil || !errors.Is(*h.cause.Load(), holdfast.ErrReleased) {
		return err // in the second case the loss is known
	}
	if errors.Is(err, holdfast.ErrOutcomeUnknown) {
		if lost := r.lossBefore(); lost != nil {
			return lost
		}
		return err
	}
	if lost := h.grant.Lease.Lost(); lost != nil {
		return h.named(lost)
	}
	if errors.Is(err, queue.ErrEntryGone) {
		return h.askWhyGone(h.grant.Lease.Context())
	}
	return err
}

// lossBefore returns the loss of the hold if etcd has ended its lease, or
// nil. That may have been before the release began. So if no reply tells
// otherwise, the hold counts as lost.
func (r *removal) lossBefore() *holdfast.LostError {
	lost := r.hold.grant.Lease.Lost()
	if lost == nil || lost.Cause != holdfast.CauseRevoked && lost.Cause != holdfast.CauseClusterChanged {
		return nil
	}
	return r.hold.named(lost)
}
