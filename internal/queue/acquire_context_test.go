package queue

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// The context of a server's requests may live as long as the server.
func TestCallsLeaveNothingThatListensToTheCallersContext(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		ahead := kit.Join(t, srv, entriesX)
		q := p.queue("x")
		a := newAttempt(Set{q}.join(Request{}), p.Host.Lease())
		if err := a.put(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, call := range map[string]func(ctx context.Context) error{
			"a wait": func(ctx context.Context) error {
				time.AfterFunc(time.Second, ahead.Release)
				return a.awaitFront(ctx)
			},
			"Limit": func(ctx context.Context) error { _, err := NewSemaphore(p.Host, "x", 1).Limit(ctx); return err },
		} {
			ctx := &kit.Listened{Context: t.Context()}
			if err := call(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			ctx.NothingListens(t, name)
		}
		mustHandOff(t, a.entries[0])
	})
}
