package queue

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// The writer gives up before it knows what is ahead, so that only the hand-off learns it.
func TestNextInAWritersLineDelaysIfTheWriterNeverKnewItsPlace(t *testing.T) {
	for name, revoke := range map[string]bool{"revoked": true, "released": false} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				gone, stays := kit.JoinReader(t, srv, entriesX), kit.JoinReader(t, srv, entriesX)
				p.Plan(func(kind string, n int) etcdfake.Fate {
					switch {
					case kind == "enqueue" && n == 1:
						return lostReply
					case kind == "read" && n > 1: // the first finds that the entry stands
						return silence
					}
					return etcdfake.Fate{}
				})
				ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
				writer := acquireLater(ctx, p.queue("x"))
				kit.Queued(t, srv, entriesX, 3)
				next := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
				time.Sleep(time.Second)
				if n := p.Counts(); n["read"] < 2 {
					t.Fatalf("sent %v: the writer does not ask for its place", n)
				}
				if revoke {
					gone.Revoke()
				} else {
					gone.Release()
				}
				giveUp()
				<-writer
				p.Plan(nil)
				time.Sleep(3 * time.Second)
				if n := p.Counts(); n["hand-off"] != 1 {
					t.Fatalf("sent %v, want a hand-off", n)
				}
				stays.Release()
				delayed(t, <-next, srv, stays.Key, revoke)
			})
		})
	}
}
