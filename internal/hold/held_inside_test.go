package hold

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/queue"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// While a request that says since when is under way, no second one is sent: etcd is slow enough.
func TestRequestThatSaysSinceWhenWaitsForTheReplyToTheLast(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		h := mustHold(t, p, "x")
		p.PlanAll("held", etcdfake.Fate{Request: 3 * time.Second})
		sent := make(map[time.Time]bool)
		for range 30 { // until about 2 s after the first
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if at := h.poll.since.latest; !at.IsZero() {
				sent[at] = true
			}
		}
		if len(sent) != 1 {
			t.Errorf("sent at %v", sent)
		}
		p.Plan(nil)
	})
}

// Requests are a second apart, and a hold is a second old. Not a tick more: people look for long holds.
func TestEntrySaysSinceWhenAfterASecond(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		grants, err := queue.Set{queue.New(p.Host, holdfast.KindLock, "x")}.Acquire(t.Context(), queue.Request{})
		if err != nil {
			t.Fatal(err)
		}
		h := newHold(grants[0], Request{}, nil) // the poller does not know it
		for _, c := range []struct {
			wait, since time.Duration // since the last request
			sent        bool
		}{
			{wait: heldAfter - 1, since: time.Hour}, {wait: 1, since: heldEvery - 1}, {since: heldEvery, sent: true},
		} {
			time.Sleep(c.wait)
			w := heldWriter{latest: time.Now().Add(-c.since)}
			w.write(p.Host, []*Hold{h})
			if sent := w.busy.Load(); sent != c.sent {
				t.Errorf("held for %v, %v after the last request: sent %v", time.Since(h.since), c.since, sent)
			}
		}
		synctest.Wait()
		_ = grants[0].Remove()
	})
}
