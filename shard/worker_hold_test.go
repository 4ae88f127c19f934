package shard_test

import (
	"context"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/shard"
)

// The hold ends after the grant, while the number of shards is compared. That is no end of a function.
func TestNoFunctionBeginsUnderAHoldThatHasEnded(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 1)
		p, work := kit.Start(t, srv), f.work("a", 0)
		joined := false // the number was compared before that, too
		p.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
			txn, _ := c.Request.(*pb.TxnRequest)
			if joined = joined || strings.Contains(txn.String(), members); joined && strings.Contains(txn.String(), count) {
				f.Reply = settled
			}
			return f
		})
		f.startWith(p, "a", func(ctx context.Context, s *shard.Shard) error {
			if err := s.Check(); err != nil {
				t.Errorf("it begins, and the hold has ended: %v", err)
			}
			return work(ctx, s)
		}, func(o *shard.Options) {
			o.OnError = func(_ int, err error) { t.Errorf("OnError: %v", err) }
		})
		for len(srv.Keys(entries)) != 3 { // the number of shards, the entry and its claim
			time.Sleep(100 * time.Millisecond)
		}
		adm, entry := admin.New(srv.Client(t), admin.Options{}), srv.Keys(entries + "0/@/")[0]
		token := holdfast.Token(entry.CreateRevision)
		if err := adm.Kick(t.Context(), holdfast.KindShard, "orders/0", token, "to test"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * settled)
		if f.even("afterwards", "a"); f.calls() != 1 || f.last[0] <= token {
			t.Errorf("%d calls, token %v, of the kicked one %v", f.calls(), f.last[0], token)
		}
	})
}
