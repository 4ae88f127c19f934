package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// An entry that may still stand keeps the name taken, whichever session put it.
func TestTryAcquireIsRefusedWhileAnOwnEntryMayStand(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := holdtest.Start(t, srv), holdtest.Start(t, srv)
		q := p.Queue("x")
		expect := func(when string, want error) {
			t.Helper()
			if _, err := holdtest.TryAcquire(kit.Within(t, time.Minute), q); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", when, err, want)
			}
		}
		h := holdtest.MustAcquire(t, q)
		expect("held by this session", queue.ErrOccupied)
		p.Link.BlackHole()
		if err := h.Release(kit.Within(t, 50*time.Millisecond)); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		expect("after an Unlock that was not answered", queue.ErrOccupied)
		p.Heal()
		time.Sleep(5 * time.Second)
		theirs := holdtest.MustAcquire(t, other.Queue("x"))
		expect("held by another session", queue.ErrOccupied)

		ctx, giveUp := context.WithCancel(t.Context())
		waiter := holdtest.AcquireLater(ctx, q)
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		expect("waited for by this session", queue.ErrOccupied)
		p.Link.BlackHole()
		giveUp()
		<-waiter
		expect("after a Lock that gave up", queue.ErrOccupied)
		p.Heal()
		time.Sleep(5 * time.Second)
		holdtest.MustRelease(t, theirs)
		holdtest.MustRelease(t, holdtest.MustAcquire(t, q))
	})
}
