package hold

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/queue"
)

// After a pause of the process a poll may find that the entry has gone before anything has looked at the clock. The
// lease expired meanwhile: that is the cause, and work that goes on is told without a grace.
func TestEntryThatIsGoneAfterAPauseWentWithAnExpiredLease(t *testing.T) {
	t.Parallel()
	for now, want := range map[time.Duration]holdfast.Cause{
		time.Second: holdfast.CauseEntryDeleted, time.Hour: holdfast.CauseExpired,
	} {
		l := lease.New(lease.Origin{ID: 1, TTL: 15 * time.Second}, func() time.Duration { return now })
		h := new(Hold)
		h.grant = &queue.Grant{Lease: l, Queue: queue.New(nil, holdfast.KindLock, "x")}
		h.life = &life{holds: []*Hold{h}}
		if lost := h.lossOfEntry(holdfast.CauseEntryDeleted); lost.Cause != want {
			t.Errorf("%v after the Grant: %v, want %v", now, lost.Cause, want)
		}
	}
}
