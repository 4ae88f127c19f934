package queue_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// The history is compacted, and then etcd does not answer for most of a lock delay. Just before it does, the lease of a
// holder ahead is revoked.
func TestDelayForACompactedHistoryBeginsWithTheReadOfWhatStands(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Permits(1, 1))
		first := holdtest.AcquireLater(ctx, holdtest.Start(t, srv).Permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		p := holdtest.Start(t, srv)
		second := holdtest.AcquireLater(ctx, p.Permits(1, 1))
		kit.Queued(t, srv, permitsX, 3)
		answers := time.Now().Add(kit.LockDelay * 3 / 4)
		p.Plan(func(kind string, n int) etcdfake.Fate {
			switch {
			case kind != "read":
				return etcdfake.Fate{}
			case n == 1: // at the revision of the mark
				return etcdfake.Fate{Request: 20 * kit.OneWay}
			default:
				return etcdfake.Fate{Request: max(time.Until(answers), kit.OneWay)}
			}
		})
		holdtest.MustRelease(t, h)
		heldNow(t, first)
		srv.Put("other", "")
		srv.Compact()
		time.Sleep(time.Until(answers) - kit.OneWay)
		oldest := slices.MinFunc(srv.Keys(permitsX), func(a, b *mvccpb.KeyValue) int {
			return cmp.Compare(a.CreateRevision, b.CreateRevision)
		})
		srv.Revoke(clientv3.LeaseID(oldest.Lease))
		at := time.Now()
		r := <-second
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if after := r.At.Sub(at); after < kit.LockDelay {
			t.Errorf("it held %v after the permit ahead of it was revoked", after)
		}
		holdtest.MustRelease(t, r.H)
	})
}

// One permit ahead holds all. Of the next one the reply to the put is lost, and history is compacted before it has read
// whether there was room. The one behind takes it for one that puts a mark before it holds. When both fit, both hold.
func TestPermitWhosePlaceIsCompactedKeepsNoneWaiting(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Permits(2, 2))
		answers := time.Now().Add(100 * kit.OneWay)
		p := holdtest.Start(t, srv)
		p.Plan(func(kind string, n int) etcdfake.Fate {
			switch {
			case kind == "enqueue" && n == 1:
				return holdtest.LostReply
			case kind == "read":
				return etcdfake.Fate{Request: max(time.Until(answers), kit.OneWay)}
			default:
				return etcdfake.Fate{}
			}
		})
		first := holdtest.AcquireLater(ctx, p.Permits(2, 1))
		kit.Queued(t, srv, permitsX, 2)
		second := holdtest.AcquireLater(ctx, holdtest.Start(t, srv).Permits(2, 1))
		kit.Queued(t, srv, permitsX, 3)
		holdtest.MustRelease(t, h)
		srv.Put("other", "")
		srv.Compact()
		for _, done := range []<-chan holdtest.Result{first, second} {
			r := <-done
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			defer holdtest.MustRelease(t, r.H)
		}
	})
}
