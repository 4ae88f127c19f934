package queue

import (
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

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
