package queue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/places"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/view"
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
		waiting := func(w wait) *entry { return &entry{stage: placed, wait: w} }
		for name, c := range map[string]struct {
			e         *entry
			removable int // how many comparisons; 0: it may not be removed now
			left      time.Duration
			waits     bool
		}{
			"unsent":                              {&entry{}, 0, 0, true},
			"sent":                                {&entry{stage: sent}, 0, 0, true},
			"created, its place unknown":          {&entry{stage: created}, 0, 0, true},
			"behind another":                      {waiting(wait{ahead: ahead}), 2, 0, true},
			"behind another, a delay has begun":   {waiting(wait{ahead: ahead, delay: delay{soon}}), 2, 0, true},
			"a permit behind another":             {waiting(wait{ahead: ahead, permit: &permit{}}), 1, 0, true},
			"first":                               {waiting(wait{}), 1, 0, false},
			"first, its delay runs":               {waiting(wait{delay: delay{soon}}), 0, time.Second, true},
			"first, its delay ends in a moment":   {waiting(wait{delay: delay{time.Now().Add(1)}}), 0, 1, true},
			"first, its delay ends now":           {waiting(wait{delay: delay{time.Now()}}), 1, 0, true},
			"held":                                {&entry{stage: held}, 1, 0, false},
			"held, and never had to wait for one": {&entry{stage: held, wait: wait{ahead: ahead}}, 1, 0, true},
		} {
			e := c.e
			a := &attempt{entries: []*entry{e}}
			e.q, e.key, e.of = q, name, a
			if n := len(e.removableNow()); n != c.removable {
				t.Errorf("%s: it is removed by %d comparisons, want %d", name, n, c.removable)
			}
			if left := e.wait.delayLeft(); left != c.left {
				t.Errorf("%s: %v of the lock delay are left, want %v", name, left, c.left)
			}
			if waits := a.waiting(); (waits == e) != c.waits {
				t.Errorf("%s: waits is %v", name, waits != nil)
			}
		}
		first, second := &entry{q: q, stage: placed}, &entry{q: q, stage: placed, wait: wait{ahead: ahead}}
		if a := (attempt{entries: []*entry{first, second}}); a.waiting() != second {
			t.Error("of a set whose second entry waits, another one waits")
		}
	})
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
		first.entry.finish()
		if kept := q.Kept(second.Lease); len(kept) != 1 {
			t.Errorf("kept: %v", kept)
		}
		mustHandOff(t, second)
	})
}

// The sweeper puts the session key again when no put of the lease is under way, which that would refuse.
func TestEntryIsInFlightUntilItsRevisionIsKnown(t *testing.T) {
	for s, want := range map[stage]bool{
		unsent: true, sent: true, created: false, placed: false, held: false, ended: false,
	} {
		if got := (suspect{&entry{stage: s}}).InFlight(); got != want {
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
			g.entry.abandon()
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
		q := start(t, srv).queue("x")
		told := make(chan view.Place, 1)
		tk := newTicket(q, Request{OnWait: func(p view.Place) { told <- p }})
		tk.ahead = places.Ahead{Count: 1, At: time.Now()}
		w := &wait{e: &entry{q: q}, ahead: &mvccpb.KeyValue{}}
		w.tell(t.Context())
		w.e.ticket = tk
		over, cancel := context.WithCancel(t.Context())
		cancel()
		w.tell(over)
		synctest.Wait()
		if len(told) != 0 {
			t.Error("told")
		}
		w.tell(t.Context())
		if p := <-told; p.Ahead != 1 {
			t.Errorf("told %+v", p)
		}
		tk.teller.End()
	})
}

// shownAs is what others see of an entry; without a key: of one that is held no more.
type shownAs string

func (s shownAs) Shown() (view.Entry, bool) { return view.Entry{Key: string(s)}, s != "" }

func TestPlaceBehindAGoroutineOfTheSession(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		tk := newTicket(start(t, srv).queue("x"), Request{})
		tk.ahead = places.Ahead{Holder: &mvccpb.KeyValue{Key: []byte("ahead")}, Count: 1, At: time.Now()}
		for _, c := range []struct {
			shown  Shown
			inLine int
			holder string
			ahead  int
		}{
			{nil, 2, "ahead", 3}, {shownAs("held"), 2, "held", 2}, {shownAs(""), 2, "ahead", 3},
			{shownAs("held"), 0, "ahead", 1},
		} {
			tk.shown = c.shown
			if p := tk.placeBehind(c.inLine); p.Holder.Key != c.holder || p.Ahead != c.ahead {
				t.Errorf("%+v: %+v", c, p)
			}
		}
	})
}
