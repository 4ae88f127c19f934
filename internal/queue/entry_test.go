package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

func TestStageOnlyGrows(t *testing.T) {
	e := &entry{}
	for _, to := range []stage{sent, placed, sent, held, placed, ended, held} {
		before := e.stage
		e.reach(to)
		if e.stage != max(before, to) {
			t.Errorf("from %d to %d: %d", before, to, e.stage)
		}
	}
}

func TestEntryIsRemovedWhenItMayBe(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		q := start(t, srv).queue("x")
		ahead := &mvccpb.KeyValue{Key: []byte("ahead"), CreateRevision: 3}
		soon := time.Now().Add(time.Second)
		for name, c := range map[string]struct {
			e         *entry
			removable int // how many comparisons; 0: it may not be removed now
			left      time.Duration
			waits     bool
		}{
			"unsent":                              {&entry{}, 0, 0, true},
			"sent":                                {&entry{stage: sent}, 0, 0, true},
			"created, its place unknown":          {&entry{stage: created}, 0, 0, true},
			"behind another":                      {&entry{stage: placed, ahead: ahead}, 2, 0, true},
			"behind another, a delay has begun":   {&entry{stage: placed, ahead: ahead, delayUntil: soon}, 2, 0, true},
			"a permit behind another":             {&entry{stage: placed, ahead: ahead, permit: &permit{}}, 1, 0, true},
			"first":                               {&entry{stage: placed}, 1, 0, false},
			"first, its delay runs":               {&entry{stage: placed, delayUntil: soon}, 0, time.Second, true},
			"first, its delay ends in a moment":   {&entry{stage: placed, delayUntil: time.Now().Add(1)}, 0, 1, true},
			"first, its delay ends now":           {&entry{stage: placed, delayUntil: time.Now()}, 1, 0, false},
			"held":                                {&entry{stage: held}, 1, 0, false},
			"held, and never had to wait for one": {&entry{stage: held, ahead: ahead}, 1, 0, true},
		} {
			e := c.e
			e.q, e.key, e.set = q, name, []*entry{c.e}
			if n := len(e.removableNow()); n != c.removable {
				t.Errorf("%s: it is removed by %d comparisons, want %d", name, n, c.removable)
			}
			if left := e.delayLeft(); left != c.left {
				t.Errorf("%s: %v of the lock delay are left, want %v", name, left, c.left)
			}
			if waits := e.waiting(); (waits == e) != c.waits {
				t.Errorf("%s: waits is %v", name, waits != nil)
			}
		}
		first, second := &entry{q: q, stage: placed}, &entry{q: q, stage: placed, ahead: ahead}
		first.set = []*entry{first, second}
		if first.waiting() != second {
			t.Error("of a set whose second entry waits, another one waits")
		}
	})
}

type contextKey struct{}

// A request ends with the lease, or a while after its caller, whose values it has. It leaves nothing behind.
func TestContextOfARequest(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		e := &entry{q: p.queue("x"), lease: p.Host.Lease()}
		for _, grace := range []time.Duration{0, giveUpWait} {
			caller, cancel := context.WithCancel(t.Context())
			listens := &kit.Listened{Context: caller}
			ctx, stop := e.requestContext(context.WithValue(listens, contextKey{}, "value"), grace)
			if ctx.Value(contextKey{}) != "value" {
				t.Error("the request lacks a value of its caller")
			}
			began := time.Now()
			cancel()
			<-ctx.Done()
			if took := time.Since(began); took != grace {
				t.Errorf("the request ended %v after its caller, want %v", took, grace)
			}
			stop()

			ctx, stop = e.requestContext(&kit.Listened{Context: t.Context()}, grace)
			stop()
			if ctx.Err() == nil {
				t.Error("the context outlasts its request")
			}
			listens = &kit.Listened{Context: t.Context()}
			_, stop = e.requestContext(listens, grace)
			stop()
			listens.NothingListens(t, "a request")
		}
		ctx, stop := e.requestContext(t.Context(), time.Hour)
		defer stop()
		lost, stopLost := e.untilLost(t.Context())
		defer stopLost()
		srv.Revoke(p.Sess.Lease())
		<-ctx.Done()
		<-lost.Done()
		if !errors.Is(context.Cause(lost), holdfast.ErrLost) {
			t.Errorf("ended by %v, want the loss", context.Cause(lost))
		}
	})
}

// The entries of an attempt whose lease is lost are removed by etcd.
func TestNothingIsSweptAfterALeaseThatIsLost(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		q, lease := p.queue("x"), p.Host.Lease()
		e := q.shared.keys.newEntry(q, lease)
		e.reach(sent)
		srv.Revoke(p.Sess.Lease())
		time.Sleep(kit.Prompt)
		if lease.Lost() == nil {
			t.Fatal("the lease is not lost")
		}
		p.Plan(nil)
		e.finish()
		time.Sleep(kit.Prompt)
		if counts := p.Counts(); counts["gate"] != 0 || q.used() != 0 {
			t.Errorf("%v, and %d keys are in use", counts, q.used())
		}
	})
}
