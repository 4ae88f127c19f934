package queue

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// A job that is skipped when the lock is taken must be told when no client holds it.
func TestTryAcquireTellsOwnUnconfirmedEntriesFromALock(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := start(t, srv), start(t, srv)
		q := p.queue("x")
		expect := func(when string, want error) {
			t.Helper()
			if _, err := q.TryAcquire(kit.Within(t, time.Minute), Request{}); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", when, err, want)
			}
		}
		h := mustAcquire(t, q)
		expect("held by this session", ErrOccupied)
		p.Link.BlackHole()
		if err := h.Release(kit.Within(t, 50*time.Millisecond)); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		expect("after an Unlock that was not answered", ErrUnconfirmed)
		p.Heal()
		time.Sleep(5 * time.Second)
		theirs := mustAcquire(t, other.queue("x"))
		expect("held by another session", ErrOccupied)

		ctx, giveUp := context.WithCancel(t.Context())
		waiter := acquireLater(ctx, q)
		kit.Queued(t, srv, entriesX, 2)
		expect("waited for by this session", ErrOccupied)
		p.Link.BlackHole()
		giveUp()
		<-waiter
		expect("after a Lock that gave up", ErrUnconfirmed)
		p.Heal()
		time.Sleep(5 * time.Second)
		mustRelease(t, theirs)
		mustRelease(t, mustAcquire(t, q))
	})
}

func TestTryAcquireTellsALeftoverEntryFromALock(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h := mustAcquire(t, p.queue("other"))
		mustRelease(t, h)
		left := strings.Replace(h.Key(), "/other/", "/x/", 1)
		srv.Put(left, "")
		if _, err := p.queue("x").TryAcquire(kit.Within(t, time.Minute), Request{}); !errors.Is(err, ErrUnconfirmed) {
			t.Errorf("TryLock: %v", err)
		}
		srv.Delete(left)
	})
}
