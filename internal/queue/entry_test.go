package queue

import (
	"context"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/view"
)

func TestStageOnlyGrows(t *testing.T) {
	e := &entry{}
	for _, to := range []stage{sent, placed, sent, created, ended, placed} {
		before := e.stage
		e.reach(to)
		if e.stage != max(before, to) {
			t.Errorf("from %d to %d: %d", before, to, e.stage)
		}
	}
}

// The entries of an attempt whose lease is lost are removed by etcd.
func TestNothingIsSweptAfterALeaseThatIsLost(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		q, lease := p.queue("x"), p.Host.Lease()
		e := (&attempt{lease: lease}).newEntry(q)
		e.reach(sent)
		srv.Revoke(p.Sess.Lease())
		time.Sleep(kit.Prompt)
		if lease.Lost() == nil {
			t.Fatal("the lease is not lost")
		}
		p.Plan(nil)
		e.finish()
		time.Sleep(kit.Prompt)
		if counts := p.Counts(); counts["gate"] != 0 || q.Used() != 0 {
			t.Errorf("%v, and %d keys are in use", counts, q.Used())
		}
	})
}

// A second time, its key may be that of another entry.
func TestEntryIsFinishedOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		q := p.queue("x")
		first := mustAcquire(t, q)
		mustHandOff(t, first)
		second := mustAcquire(t, q)
		if second.Key != first.Key {
			t.Fatal("the key was not used again: this tests nothing")
		}
		first.finish()
		if kept := q.Kept(second.Lease); len(kept) != 1 {
			t.Errorf("kept: %v", kept)
		}
		mustHandOff(t, second)
	})
}

// The sweeper puts the session key again when no put of the lease is under way, which that would refuse.
func TestEntryIsInFlightUntilItsRevisionIsKnown(t *testing.T) {
	for s, want := range map[stage]bool{
		unsent: true, sent: true, created: false, placed: false, ended: false,
	} {
		if got := (&entry{stage: s}).InFlight(); got != want {
			t.Errorf("at stage %v: %v", s, got)
		}
	}
}

// A lease that the session gave up by its clock still stands in etcd. Its entries are removed before it is revoked.
func TestEntryIsKeptUntilItsLeaseIsGoneFromEtcd(t *testing.T) {
	for cause, kept := range map[holdfast.Cause]int{
		holdfast.CauseRevoked: 0, holdfast.CauseClusterChanged: 0, holdfast.CauseExpired: 1,
	} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			p := start(t, srv)
			g := mustAcquire(t, p.queue("x"))
			p.Link.BlackHole() // so it is not revoked
			g.Lease.Lose(cause, nil)
			g.finish()
			if n := len(g.Queue.Kept(g.Lease)); n != kept {
				t.Errorf("%v: %d entries are kept", cause, n)
			}
			p.Heal()
		})
	}
}

// An entry that the sweeper has found has no caller, and one whose call has ended tells it nothing.
func TestOnlyACallerWhoWaitsIsToldThePlace(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		kit.Join(t, srv, entriesX)
		q := start(t, srv).queue("x")
		told := make(chan view.Place, 1)
		tk := Set{q}.join(Request{OnWait: func(p view.Place) { told <- p }})[0]
		w := &entry{Queue: q, caller: newCaller(q, Request{}), wait: wait{ahead: &mvccpb.KeyValue{}}}
		w.tell(t.Context())
		w.caller = tk
		over, cancel := context.WithCancel(t.Context())
		cancel()
		w.tell(over)
		time.Sleep(time.Second)
		if len(told) != 0 {
			t.Error("told")
		}
		w.tell(t.Context())
		if p := <-told; p.Ahead != 1 || p.Holder.Key == "" {
			t.Errorf("told %+v", p)
		}
		w.ahead = nil // dead claims are ahead, or nothing is
		w.tell(t.Context())
		if p := <-told; p.Ahead != 0 || !p.Seen.Equal(time.Now()) {
			t.Errorf("the first is told %+v", p)
		} else if p.Name != "" {
			t.Errorf("a lock alone is told of queue %q", p.Name)
		}
		tk.inSet = true
		w.tell(t.Context())
		if p := <-told; p.Name != "x" {
			t.Errorf("a set is told of queue %q", p.Name)
		}
		tk.teller.end()
		tk.next()
	})
}
