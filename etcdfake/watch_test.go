package etcdfake_test

import (
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
)

func TestWatchResumesAfterABrokenConnection(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		events := link.Client().Watch(t.Context(), "k", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
		if resp := <-events; !resp.Created {
			t.Fatalf("%+v", resp)
		}
		srv.Put("k1", "")
		<-events
		link.Cut()
		srv.Put("k2", "")
		srv.Put("k3", "")
		link.Heal()
		if resp := <-events; len(resp.Events) != 2 || string(resp.Events[0].Kv.Key) != "k2" {
			t.Errorf("%+v", resp)
		}
		// An idle watch resumes after its last event.
		srv.Put("other", "")
		srv.Put("other", "")
		srv.Compact()
		link.Reset()
		if resp := <-events; resp.Err() != rpctypes.ErrCompacted || resp.CompactRevision == 0 {
			t.Errorf("after a compaction: %+v", resp)
		}
		if _, open := <-events; open {
			t.Error("the channel is still open")
		}
	})
}

func TestDelayedEventsArriveInOneResponse(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		events := link.Client().Watch(t.Context(), "k")
		link.Delay(time.Second)
		start := time.Now()
		for range 3 {
			srv.Put("k", "")
		}
		if resp := <-events; len(resp.Events) != 3 || time.Since(start) != time.Second {
			t.Errorf("%d events after %v", len(resp.Events), time.Since(start))
		}
	})
}
