package queue

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/layout"
)

// reportAcquire reports to telemetry how a call that returned err ended. recordGrant reports holds.
func (q *Queue) reportAcquire(ctx context.Context, r Request, err error) {
	switch {
	case err == nil:
	case errors.Is(err, ErrOccupied):
		r.telemetry.Failed("occupied", false)
	case errors.Is(err, holdfast.ErrClosed):
		r.telemetry.Failed("closed", true)
	case ctx.Err() != nil:
		r.telemetry.Failed("canceled", false)
	case errors.Is(err, holdfast.ErrLost):
		r.telemetry.Failed("lost", true)
	default:
		r.telemetry.Failed("failed", true)
	}
}

// releaseOutcome is telemetry's word for what Release returned.
func releaseOutcome(err error) string {
	switch {
	case err == nil:
		return "released"
	case errors.Is(err, holdfast.ErrOutcomeUnknown):
		return "unknown"
	case errors.Is(err, holdfast.ErrLost):
		return "lost"
	default:
		return "failed"
	}
}

// reportUnknown reports whether the outcome of the request is unknown, and counts it if so.
func (q *Queue) reportUnknown(request string, err error) bool {
	if etcderr.Classify(err) != etcderr.Unknown {
		return false
	}
	q.host.Telemetry().Ambiguous(q.at.Kind, request)
	return true
}

// recordGrant reports the grant to the auditor and to telemetry.
func (h *Hold) recordGrant() {
	if h.audited() {
		h.tell(h.record(audit.Granted, h.since))
	}
	h.telemetry.Held()
}

// recordEnd reports the end, once the entry is gone or given up: a slow auditor must not block the next holder.
func (h *Hold) recordEnd() {
	held := h.until.Sub(h.since) // by the monotonic clock
	var lost *holdfast.LostError
	if err := *h.cause.Load(); !errors.Is(err, holdfast.ErrReleased) {
		errors.As(err, &lost)
	} else if errors.As(h.outcome, &lost) && endedDuringRelease(lost) {
		lost = nil
	}
	switch {
	case lost != nil:
		lost = h.fromHistory(lost)
		r := h.record(audit.Lost, h.until)
		r.Held, r.Err = held, lost
		h.tell(r) // if there is no auditor, as a warning in the log
		h.telemetry.Lost(held, lost.Cause.String(), lost.Since)
		return
	case h.audited():
		r := h.record(audit.Released, h.until)
		r.Held, r.Err = held, h.outcome
		r.TakenFor = max(0, h.entry.ticket.request.MinHold-held)
		h.tell(r)
	}
	h.telemetry.Released(held)
}

// audited reports whether a grant and a release are recorded, which may take time:
// by an auditor, or in the log of a session that logs at Debug.
func (h *Hold) audited() bool {
	return h.auditor != nil || h.entry.q.host.Logger().Enabled(context.Background(), slog.LevelDebug)
}

func (h *Hold) record(event audit.Event, at time.Time) audit.Record {
	e := h.entry
	return audit.Record{
		Event: event, At: at, Kind: e.q.at.Kind, Name: e.q.at.Name, Key: e.key,
		Lease: holdfast.LeaseID(h.Lease()), Token: int64(e.token), Holder: h.holder(),
	}
}

func (h *Hold) tell(r audit.Record) {
	a := h.auditor
	if a == nil {
		a = audit.Log(h.entry.q.host.Logger())
	}
	audit.Tell(context.Background(), a, r)
}

// maxHolder bounds what a record says of the holder, in bytes.
const maxHolder = 256

// holder is what a record says of the holder.
func (h *Hold) holder() string {
	holder := h.entry.value
	if v, ok := layout.DecodeValue([]byte(holder)); ok && !h.entry.q.at.Verbatim() {
		holder = v.Holder()
	}
	return strings.ToValidUTF8(holder[:min(len(holder), maxHolder)], "")
}
