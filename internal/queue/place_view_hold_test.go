package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// Everything that a hold has made ends at the moment of the loss, also if the work never asks.
func TestEachHoldOfALeaseEndsWithIt(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		for range 2 { // the second time under the next lease
			var contexts []context.Context
			for _, name := range []string{"x", "y", "z"} {
				ctx, cancel := holdtest.MustAcquire(t, p.Queue(name)).Context(t.Context(), false)
				defer cancel()
				contexts = append(contexts, ctx)
			}
			ofAll := p.Host.Lease()
			srv.Revoke(p.Sess.Lease())
			<-ofAll.Context().Done()
			began := time.Now()
			for _, ctx := range contexts {
				<-ctx.Done()
			}
			if took := time.Since(began); took > kit.OneWay {
				t.Errorf("the holds ended %v after their lease", took)
			}
			time.Sleep(kit.TTL)
		}
	})
}
