package hold

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/internal/layout"
)

// recorder reports a hold to its auditor and to telemetry.
type recorder struct{ *Hold }

// recordEnd reports the end, once the entry is gone or given up: a slow auditor must not block the next holder. It is
// the last thing done for a hold.
func (h recorder) recordEnd() {
	defer h.removal.joined()
	held := h.until.Sub(h.since) // by the monotonic clock
	var lost *holdfast.LostError
	if err := *h.cause.Load(); !errors.Is(err, holdfast.ErrReleased) {
		errors.As(err, &lost)
	} else if errors.As(h.removal.outcome, &lost) && endedDuringRelease(lost) {
		lost = nil
	}
	switch {
	case lost != nil:
		r := h.record(audit.Lost, h.until)
		r.Held, r.Err = held, lost
		h.tell(r) // if there is no auditor, as a warning in the log
		h.telemetry.Lost(held, lost.Cause.String(), lost.Since)
		return
	case h.audited():
		r := h.record(audit.Released, h.until)
		r.Held, r.Err = held, h.removal.outcome
		r.TakenFor = max(0, h.request.MinHold-held)
		h.tell(r)
	}
	h.telemetry.Released(held)
}

// audited reports whether a grant and a release are recorded, which may take time:
// by an auditor, or in the log of a session that logs at Debug.
func (h recorder) audited() bool {
	return h.request.Auditor != nil || h.host.Logger().Enabled(context.Background(), slog.LevelDebug)
}

func (h recorder) record(event audit.Event, at time.Time) audit.Record {
	return audit.Record{
		Event: event, At: at, Kind: h.Queue().Kind(), Name: h.Queue().Name(), Key: h.Key(),
		Lease: h.Lease(), Token: h.Token(), Holder: h.holder(),
	}
}

func (h recorder) tell(r audit.Record) {
	a := h.request.Auditor
	if a == nil {
		a = audit.Log(h.host.Logger())
	}
	audit.Tell(context.Background(), a, r)
}

// maxHolder bounds what a record says of the holder, in bytes.
const maxHolder = 256

// holder is what a record says of the holder.
func (h recorder) holder() string {
	return holderIn(h.grant.Value, h.Queue().Layout().Verbatim)
}

func holderIn(value string, verbatim bool) string {
	holder := value
	if v, ok := layout.DecodeValue([]byte(value)); ok && !verbatim {
		holder = v.Holder()
	}
	return strings.ToValidUTF8(holder[:min(len(holder), maxHolder)], "")
}
