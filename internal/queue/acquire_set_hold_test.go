package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// What ends one hold of a set ends all, with one cause. Contexts end before any entry goes, none stays behind, and the
// poller forgets them.
func TestSetEndsAsAWhole(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(t *testing.T, srv *etcdfake.Server, p *holdtest.Process, holds []*hold.Hold)
		cause  holdfast.Cause
		within time.Duration
		kept   bool // until Release
	}{
		"an entry is deleted by hand": {
			end:   func(_ *testing.T, srv *etcdfake.Server, _ *holdtest.Process, h []*hold.Hold) { srv.Delete(h[1].Key()) },
			cause: holdfast.CauseEntryDeleted, within: time.Second,
		},
		"the reader's entry is deleted by hand": {
			end:   func(_ *testing.T, srv *etcdfake.Server, _ *holdtest.Process, h []*hold.Hold) { srv.Delete(h[2].Key()) },
			cause: holdfast.CauseEntryDeleted, within: time.Second,
		},
		"one is kicked": {
			end: func(t *testing.T, srv *etcdfake.Server, _ *holdtest.Process, h []*hold.Hold) {
				holdtest.Notify(t, srv, srv.Keys(h[1].Key())[0], layout.Notice{By: "ops", Reason: "deploy"})
			},
			cause: holdfast.CauseKicked, within: time.Second, kept: true,
		},
		"two are kicked": {
			end: func(t *testing.T, srv *etcdfake.Server, _ *holdtest.Process, h []*hold.Hold) {
				holdtest.Notify(t, srv, srv.Keys(h[2].Key())[0], layout.Notice{By: "ops", Reason: "deploy"})
				holdtest.Notify(t, srv, srv.Keys(h[0].Key())[0], layout.Notice{By: "ops", Reason: "deploy"})
			},
			cause: holdfast.CauseKicked, within: time.Second, kept: true,
		},
		"one is removed, and never released": {
			end: func(t *testing.T, srv *etcdfake.Server, _ *holdtest.Process, h []*hold.Hold) {
				holdtest.Notify(t, srv, srv.Keys(h[1].Key())[0], layout.Notice{By: "ops", Reason: "deploy", Removed: true})
			},
			cause: holdfast.CauseRemoved, within: time.Second,
		},
		"the lease is revoked": {
			end: func(_ *testing.T, srv *etcdfake.Server, p *holdtest.Process, _ []*hold.Hold) {
				srv.Revoke(p.Sess.Lease())
			},
			cause: holdfast.CauseRevoked, within: time.Second,
		},
		"the machine sleeps": {
			end:   func(_ *testing.T, _ *etcdfake.Server, p *holdtest.Process, _ []*hold.Hold) { p.Suspend(time.Hour) },
			cause: holdfast.CauseExpired, within: kit.TTL, // no timer has fired
		},
		"a fenced write is refused": {
			end:   func(_ *testing.T, _ *etcdfake.Server, _ *holdtest.Process, h []*hold.Hold) { h[2].EndStale() },
			cause: holdfast.CauseEntryDeleted, within: time.Second,
		},
		"MaxHold": {
			end:   func(*testing.T, *etcdfake.Server, *holdtest.Process, []*hold.Hold) {},
			cause: holdfast.CauseMaxHold, within: 5 * time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				holds := holdtest.MustAcquireSet(t, p.Set("x", "y", "!z"), hold.Request{MaxHold: 5 * time.Minute})
				var contexts []context.Context
				for _, h := range holds {
					ctx, cancel := h.Context(context.Background(), false)
					defer cancel()
					contexts = append(contexts, ctx)
				}
				time.Sleep(3 * time.Second)
				c.end(t, srv, p, holds)
				began := time.Now()
				<-holds[2].Done()
				if took := time.Since(began); took > c.within {
					t.Errorf("told after %v", took)
				}
				var lost *holdfast.LostError
				for i, h := range holds {
					if err := h.Check(); !errors.As(err, &lost) || lost.Cause != c.cause || err != holds[0].Check() {
						t.Errorf("Check: %v", err)
					}
					if context.Cause(contexts[i]) != holds[0].Check() {
						t.Errorf("a context: %v", context.Cause(contexts[i]))
					}
				}
				time.Sleep(20 * time.Second)
				if n := len(kit.AllStanding(srv)); c.kept != (n == 3) || !c.kept && n != 0 {
					t.Errorf("%d entries stand", n)
				}
				if err := holds[1].Release(kit.Within(t, time.Minute)); err != holds[0].Check() {
					t.Errorf("Release: %v", err)
				}
				kit.NothingStands(t, srv)
				p.Plan(nil)
				time.Sleep(10 * time.Second)
				if polls, used := p.Counts()["poll"], p.Queue("x").Used(); polls != 0 || used != 0 {
					t.Errorf("%d polls of holds that have ended, and %d keys are remembered", polls, used)
				}
			})
		})
	}
}

// An entry of the set stands in an administrator's lease, and the set's holder hears of nothing. The others stay until
// its own lease ends.
func TestRemovedEntryOfASetThatIsNeverTold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := holdtest.Start(t, srv), holdtest.Start(t, srv)
		holds := holdtest.MustAcquireSet(t, p.Set("x", "y"), hold.Request{})
		ctx := kit.Within(t, time.Minute)
		x, y := holdtest.AcquireLater(ctx, other.Queue("x")), holdtest.AcquireLater(ctx, other.Queue("y"))
		time.Sleep(time.Second)
		p.Stop()
		began := time.Now()
		srv.Delete(holds[0].Key())
		holdtest.MustRelease(t, holdtest.Granted(t, srv, x).H)
		holdtest.StaysQueued(t, y, "the writer of the other name")
		holdtest.MustRelease(t, holdtest.Granted(t, srv, y).H)
		if after := time.Since(began); after < kit.TTL/2 || after > kit.TTL+2*kit.LockDelay {
			t.Errorf("the other name was free after %v", after)
		}
		p.Resume()
		if err := holds[1].Check(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Check: %v", err)
		}
	})
}

func TestSetWaitsForNoMoreThanItsLease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		ahead := kit.Join(t, srv, kit.Entries("y"))
		done := acquireSetLater(kit.Within(t, time.Hour), p.Set("x", "y"))
		kit.Queued(t, srv, kit.Entries("y"), 2)
		old := p.Sess.Lease()
		srv.Revoke(old)
		time.Sleep(5 * time.Second)
		ahead.Release()
		holds := grantedSet(t, srv, done)
		if holds[0].Lease() == old || len(srv.Keys(holdtest.EntriesX)) != 1 {
			t.Errorf("held on lease %x, entries of x: %v", holds[0].Lease(), srv.Keys(holdtest.EntriesX))
		}
		holdtest.MustRelease(t, holds[0])
		kit.NothingStands(t, srv)
	})
}

// A suspended set at the front of all its queues holds when the lease is trusted again, unless an entry has gone.
func TestSuspendedSetVerifiesAllItsEntries(t *testing.T) {
	for name, gone := range map[string]bool{"all stand": false, "one was deleted": true} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				ahead := kit.Join(t, srv, kit.Entries("y"))
				done := acquireSetLater(kit.Within(t, time.Hour), p.Set("x", "y"))
				kit.Queued(t, srv, kit.Entries("y"), 2)
				p.Link.Plan(unrenewed)
				for p.Sess.Check() == nil {
					time.Sleep(kit.OneWay)
				}
				ahead.Release()
				time.Sleep(kit.LockDelay)
				if len(done) > 0 {
					t.Fatal("granted while suspended")
				}
				first := kit.Standing(srv, "x")[0]
				if gone {
					srv.Delete(string(first.Key))
				}
				p.Link.Plan(nil)
				holds := grantedSet(t, srv, done)
				if same := holds[0].Created() == first.CreateRevision; same == gone {
					t.Errorf("held by the entry put at %d, first %d", holds[0].Created(), first.CreateRevision)
				}
				holdtest.MustRelease(t, holds[0])
				kit.NothingStands(t, srv)
			})
		})
	}
}

// Each name has its records; to telemetry a set is one acquisition.
func TestSetIsRecordedByNameAndCountedOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var metrics kit.Metrics
		p := holdtest.Start(t, srv, func(o *session.Options) { metrics = kit.CollectMetrics(o) })
		records := make(chan audit.Record, 100)
		auditor := audit.Func(func(_ context.Context, r audit.Record) { records <- r })
		holds := holdtest.MustAcquireSet(t, p.Set("x", "y", "!z"), hold.Request{Auditor: auditor})
		time.Sleep(time.Second)
		holdtest.MustRelease(t, holds[0])
		time.Sleep(time.Second)
		seen := make(map[string]int)
		for len(records) > 0 {
			r := <-records
			seen[string(r.Event)+" "+r.Name]++
		}
		for _, want := range []string{"granted x", "granted y", "granted z", "released x", "released y", "released z"} {
			if seen[want] != 1 || len(seen) != 6 {
				t.Errorf("records: %v", seen)
			}
		}
		points := metrics.Points(t)
		for _, point := range []string{
			"acquire.duration kind=lock,outcome=held", "hold.duration kind=lock,outcome=released",
		} {
			if points[point] != 1 {
				t.Errorf("metrics: %v", points)
			}
		}
	})
}
