package queue

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
)

// maxHolder bounds what a record says of the holder, in bytes.
const maxHolder = 256

// record is what an auditor is told of a hold, twice: when it was granted and
// when it ended. Without an auditor the session's logger is.
func (h *Hold) record(event audit.Event, at time.Time) audit.Record {
	e := h.entry
	return audit.Record{
		Event: event, At: at, Kind: e.q.kind, Name: e.q.name, Key: e.key,
		Lease: holdfast.LeaseID(h.Lease()), Token: int64(e.token),
	}
}

// holder is what a record says of the holder.
func (h *Hold) holder() string {
	holder := h.entry.value
	if v, ok := DecodeValue([]byte(holder)); ok && !h.entry.q.verbatim() {
		holder = v.holder()
	}
	return strings.ToValidUTF8(holder[:min(len(holder), maxHolder)], "")
}

func (h *Hold) recordGrant() {
	if h.audited() {
		h.tell(h.record(audit.Granted, h.since))
	}
	h.telemetry.Held()
}

// recordEnd is called when the entry is gone, or given up: an auditor that is
// slow keeps nobody from the lock.
func (h *Hold) recordEnd() {
	r := h.record(audit.Released, h.until)
	r.Held = h.until.Sub(h.since) // by the monotonic clock
	switch cause := *h.cause.Load(); {
	case cause != holdfast.ErrReleased:
		r.Event, r.Err = audit.Lost, cause
	case errors.Is(h.outcome, holdfast.ErrLost) && !endedOnTheWay(h.outcome):
		r.Event, r.Err = audit.Lost, h.outcome // before the release began, perhaps
	default:
		r.Err = h.outcome
	}
	h.tell(r)
	var lost *holdfast.LostError
	if r.Event == audit.Lost && errors.As(r.Err, &lost) {
		h.telemetry.Lost(r.Held, lost.Cause.String(), lost.Since)
	} else {
		h.telemetry.Released(r.Held)
	}
}

// endedOnTheWay reports whether a loss that a release met has come after it began:
// this process had to let go of the lease, and no other had taken it before.
func endedOnTheWay(err error) bool {
	var lost *holdfast.LostError
	return errors.As(err, &lost) && (lost.Cause == holdfast.CauseExpired || lost.Cause == holdfast.CauseClosed)
}

// audited reports whether somebody is told of the hold, and may take time for it.
func (h *Hold) audited() bool {
	return h.auditor != nil || h.entry.q.sess.Logger().Enabled(context.Background(), slog.LevelDebug)
}

func (h *Hold) tell(r audit.Record) {
	if r.Event == audit.Lost || h.audited() { // or else nobody reads it
		r.Holder = h.holder()
	}
	a := h.auditor
	if a == nil {
		a = audit.Log(h.entry.q.sess.Logger())
	}
	audit.Tell(context.Background(), a, r)
}
