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

// unpolled acquires lock x. No poller knows the hold.
func unpolled(t *testing.T, p *kit.Process) *Hold {
	t.Helper()
	grants, err := queue.Set{queue.New(p.Host, holdfast.KindLock, "x")}.Acquire(t.Context(), queue.Request{})
	if err != nil {
		t.Fatal(err)
	}
	return newHold(grants[0], Request{}, nil)
}

// While a request that says since when is under way, no second one is sent: etcd is slow enough.
func TestRequestThatSaysSinceWhenWaitsForTheReplyToTheLast(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		h := unpolled(t, p)
		p.PlanAll("held", etcdfake.Fate{Request: 3 * time.Second})
		sent := make(map[time.Time]bool)
		var w heldWriter
		for range 30 { // until about 2 s after the first
			time.Sleep(100 * time.Millisecond)
			if w.write(p.Host, []*Hold{h}); !w.latest.IsZero() {
				sent[w.latest] = true
			}
		}
		if len(sent) != 1 {
			t.Errorf("sent at %v", sent)
		}
		p.Plan(nil)
		_ = h.grant.Remove()
	})
}

// Requests are a second apart, and a hold is a second old. Not a tick more: people look for long holds.
func TestEntrySaysSinceWhenAfterASecond(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		h := unpolled(t, p)
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
		_ = h.grant.Remove()
	})
}
