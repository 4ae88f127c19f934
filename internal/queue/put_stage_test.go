package queue

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// The key of an entry that was not put is used again. If a put may have been carried out, or may be yet, the sweeper
// looks for the entry first.
func TestPutThatMayHaveBeenCarriedOutCountsAsSent(t *testing.T) {
	lost := etcdfake.Fate{LoseRequest: true, Silent: true}
	for name, c := range map[string]struct {
		fate   func(n int) etcdfake.Fate
		refuse error
		occupy bool
		want   stage
	}{
		"refused": {func(int) etcdfake.Fate { return denied }, nil, false, unsent},
		"a copy has no reply, and another is refused": {func(n int) etcdfake.Fate {
			if n == 1 {
				return lost
			}
			return denied
		}, nil, false, sent},
		"no reply":            {func(int) etcdfake.Fate { return lost }, nil, false, sent},
		"the store is full":   {nil, rpctypes.ErrNoSpace, false, sent},
		"request timed out":   {nil, rpctypes.ErrTimeout, false, sent},
		"a comparison failed": {nil, nil, true, sent},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				callers := Set{p.queue("x")}.join(Request{Try: true})
				a := newAttempt(callers, p.Host.Lease())
				if c.occupy {
					srv.Put(entriesX+"theirs", "")
				}
				if c.fate != nil {
					p.Plan(func(kind string, n int) (f etcdfake.Fate) {
						if kind == "enqueue" {
							f = c.fate(n)
						}
						return f
					})
				}
				p.KV.Refuse(func([]clientv3.Op) error { return c.refuse })
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := a.put(ctx); err == nil || a.entries[0].stage != c.want {
					t.Errorf("stage %v after %v, want %v", a.entries[0].stage, err, c.want)
				}
				p.KV.Refuse(nil)
				p.Plan(nil)
				giveUp(callers, a)
				srv.Delete(entriesX + "theirs")
			})
		})
	}
}

// The limit was changed after the put was refused, and says now what the program does.
func TestPermitRefusedForALimitThatHasChangedSinceIsPutAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		kit.SetLimit(t, srv, 1)
		p := start(t, srv)
		changed := srv.Keys(kit.LimitX)[0].ModRevision
		for refused, want := range map[int64]error{
			changed - 1: errSendAgain, changed: ErrEntryGone, math.MaxInt64: ErrEntryGone,
		} {
			callers := Set{p.permits(1, 1)}.join(Request{})
			a := newAttempt(callers, p.Host.Lease())
			if err := a.whyRefused(t.Context(), a.lease.Gate(), refused); !errors.Is(err, want) {
				t.Errorf("refused at %d, and the limit was put at %d: %v, want %v", refused, changed, err, want)
			}
			giveUp(callers, a)
			time.Sleep(time.Minute) // the sweeper has moved the gate
		}
	})
}

// Txns about one queue must not be in one batch: see requests.Committer. A permit's put reads by a Txn of its own.
func TestPutIsBatchedOnlyIfItIsAboutOneQueue(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		for name, c := range map[string]struct {
			queues      Set
			about       string
			first, then int // reads before that of the epoch, and all operations
		}{
			"a lock":         {Set{p.queue("x")}, entriesX, 1, 4},
			"a reader":       {Set{p.readers("x")}, entriesX, 1, 4},
			"a set":          {Set{p.queue("x"), p.queue("y")}, "", 2, 7},
			"both of a lock": {p.queue("x").Downgradable(), "", 2, 7},
			"a permit":       {Set{p.permits(1, 1)}, "", 0, 2},
			"foreign":        {Set{At(p.Host, holdfast.KindLock, "theirs")}, "", 2, 5},
		} {
			callers := c.queues.join(Request{})
			a := newAttempt(callers, p.Host.Lease())
			put := a.putting()
			if put.About != c.about || put.epoch != c.first || len(put.Then) != c.then {
				t.Errorf("%s: about %q, %d reads, %d operations", name, put.About, put.epoch, len(put.Then))
			}
			giveUp(callers, a)
		}
	})
}

// So many turns are put at a time. Another one waits, no longer than its caller does.
func TestPutOfAPermitWaitsForOthersAsLongAsItsCaller(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		q := p.permits(1, 1)
		callers := Set{q}.join(Request{})
		a := newAttempt(callers, p.Host.Lease())
		for range cap(q.shared.permitPuts) {
			q.shared.permitPuts <- struct{}{}
		}
		p.Plan(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.put(ctx); err == nil || p.Counts()["enqueue"] != 0 {
			t.Errorf("%v; sent %v", err, p.Counts())
		}
		for range cap(q.shared.permitPuts) {
			<-q.shared.permitPuts
		}
		giveUp(callers, a)
	})
}
