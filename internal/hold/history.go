package hold

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
)

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
	if lost.Cause != holdfast.CauseEntryDeleted || !h.Queue().Layout().TakesNotices() {
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
