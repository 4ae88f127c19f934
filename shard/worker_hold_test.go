package shard_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/shard"
)

// The context of a shard ends after the grant, while the auditor runs.
func TestNoFunctionBeginsAfterItsContextHasEnded(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 1)
		granted := make(chan struct{})
		r := f.startWith(kit.Start(t, srv), "a", f.work("a", 0), func(o *shard.Options) {
			o.OnError = func(_ int, err error) { t.Errorf("OnError: %v", err) }
			o.Auditor = audit.Func(func(_ context.Context, r audit.Record) {
				if r.Event == audit.Granted {
					close(granted)
					time.Sleep(2 * time.Second) // Run retires for up to a second before the contexts end
				}
			})
		})
		<-granted
		r.stop()
		if n := f.calls(); n != 0 {
			t.Errorf("%d functions were called", n)
		}
		f.empty()
	})
}

// The hold ends after the grant, while the auditor runs. That is no end of a function.
func TestNoFunctionBeginsUnderAHoldThatHasEnded(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 1)
		work, adm := f.work("a", 0), admin.New(srv.Client(t), admin.Options{})
		var kicked holdfast.Token // by the first Granted
		f.startWith(kit.Start(t, srv), "a", func(ctx context.Context, s *shard.Shard) error {
			if err := s.Check(); err != nil {
				t.Errorf("it begins, and the hold has ended: %v", err)
			}
			return work(ctx, s)
		}, func(o *shard.Options) {
			o.OnError = func(_ int, err error) { t.Errorf("OnError: %v", err) }
			o.Auditor = audit.Func(func(ctx context.Context, r audit.Record) {
				if r.Event != audit.Granted || kicked != 0 {
					return
				}
				kicked = r.Token
				if err := adm.Kick(ctx, holdfast.KindShard, "orders/0", kicked, "to test"); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second) // until the holder is told
			})
		})
		time.Sleep(3 * settled)
		if f.even("afterwards", "a"); f.calls() != 1 || kicked == 0 || f.last[0] <= kicked {
			t.Errorf("%d calls, token %v, of the kicked one %v", f.calls(), f.last[0], kicked)
		}
	})
}
