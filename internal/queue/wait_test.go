package queue

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// A member that hangs tells a watch nothing, and others would answer. The waiter
// finds out that the stream is silent, and looks for itself.
func TestWaiterWhoseWatchIsOnAMemberThatHangsDoesNotWaitForItsConnectionToEnd(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := start(t, srv), start(t, srv)
		h := mustAcquire(t, a.queue("x"))
		waiter := acquireLater(kit.Within(t, time.Minute), b.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		b.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
			if c.Method == "Watch" && c.Request == nil { // events, and the question for a sign of life
				f = etcdfake.Fate{LoseRequest: true, Silent: true, Reply: time.Hour}
			}
			return f
		})
		mustRelease(t, h)
		released := time.Now()
		granted(t, srv, waiter)
		if took := time.Since(released); took > silentAfter+progressEvery+time.Second {
			t.Errorf("the waiter held %v after the release", took)
		}
	})
}

// A stream that lives is kept, however long nothing happens, and asked once for
// all watches on it.
func TestWatchThatHasNothingToSayIsKept(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := start(t, srv), start(t, srv)
		const waiters = 10
		for i := range waiters {
			name := string(rune('a' + i))
			mustAcquire(t, a.queue(name))
			acquireLater(kit.Within(t, time.Hour), b.queue(name))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		before := b.Link.Count()["Watch"]
		time.Sleep(time.Minute)
		sent := b.Link.Count()["Watch"] - before
		streams := len(b.queue("x").shared.streams.open)
		if most := streams * int(time.Minute/progressEvery) * 2; sent > most || sent < int(time.Minute/progressEvery)/2 {
			t.Errorf("%d messages on %d streams in a minute, want one in %v for each stream", sent, streams, progressEvery)
		}
	})
}
