package queue_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// The writer gives up before it has read which readers are ahead, and etcd no longer knows.
func TestNextInAWritersLineDelaysIfTheReadersAheadCannotBeKnown(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		gone, stays := kit.JoinReader(t, srv, holdtest.EntriesX), kit.JoinReader(t, srv, holdtest.EntriesX)
		p.PlanOne("watch", etcdfake.Fate{Request: time.Second / 2})
		next := p.GiveUpToNext(t, srv, func() {
			gone.Release()
			srv.Put("other", "")
			srv.Compact()
		})
		stays.Release()
		holdtest.Delayed(t, <-next, srv, stays.Key, true)
	})
}
