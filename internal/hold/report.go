package hold

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

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
		lost = h.fromHistory(lost)
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

// historyWait bounds the question to etcd's history. Close waits for the record of a loss, so it is shorter than Close
// is patient with goroutines.
const historyWait = 500 * time.Millisecond

// fromHistory returns the loss of a hold as its record tells it. Of a holder whose entry is gone that may be more than
// it was told: while it was paused or cut off, an administrator may have removed the entry, whose Notice it has never
// read. etcd's history has it until it is compacted.
//
// This is for the record only. The holder was told before, at once: it has believed for too long that it holds, and
// etcd takes a tenth of a second for a watch of the past.
func (h recorder) fromHistory(lost *holdfast.LostError) *holdfast.LostError {
	if lost.Cause != holdfast.CauseEntryDeleted || h.Queue().Layout().Verbatim {
		return lost
	}
	// Not the context of the lease, which ends with the session: a command that has lost its lock closes it at once.
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(context.Background()), historyWait)
	defer cancel()
	seen := h.known()
	var last layout.Notice
	for past := range h.Client().Watch(ctx, h.Key(), clientv3.WithRev(seen+1)) {
		for _, ev := range past.Events {
			if v, ok := layout.DecodeValue(ev.Kv.Value); ok && h.grant.Is(ev.Kv) {
				last = v.Notice
				continue
			}
			if last.Removed {
				removed := *lost
				removed.Cause, removed.Err = last.Cause(), last.Kick()
				return &removed
			}
			return lost // deleted in another way
		}
	}
	return lost
}
