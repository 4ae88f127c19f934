package leftovers

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

func TestMain(m *testing.M) { leak.Main(m) }

// suspect is a Suspect without a queue.
type suspect struct {
	Suspect
	inFlight bool
}

// newSuspect returns a suspect with some keys.
func newSuspect(l *lease.Lease, keys ...string) *suspect {
	return &suspect{Suspect: Suspect{Key: keys[0], Keys: keys, Lease: l}}
}

// unanswered returns a suspect with an unanswered copy at the present gate of a lease.
func unanswered(key string, l *lease.Lease) *suspect {
	s := newSuspect(l, key)
	s.UnansweredAt = l.Gate()
	return s
}

func (s *suspect) InFlight() bool { return s.inFlight }

// logTo has a session log everything to a buffer.
func logTo(b *bytes.Buffer) func(*session.Options) {
	return func(o *session.Options) {
		o.Logger = slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
}

// A put of the session key that was not answered may have refused others, too.
func TestSessionKeyIsNotPutAgainWhileRefusedPutsAreInFlight(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		keys, s := New(p.Host)
		lease := p.Host.Lease()
		inFlight := &suspect{inFlight: true}
		keys.Register("x", lease, inFlight)
		suspects := []*Suspect{&unanswered("y", lease).Suspect}
		p.PlanOne("gate", etcdfake.Fate{LoseReply: true})
		if err := s.moveGate(t.Context(), lease, suspects); err == nil {
			t.Fatal("the put was answered: this tests nothing")
		}
		if err := s.moveGate(t.Context(), lease, suspects); err != errPutsInFlight {
			t.Errorf("with an attempt in flight that the first put may have refused: %v", err)
		}
		if err := s.sweep(t.Context(), suspects); err != errPutsInFlight {
			t.Errorf("a round of the sweeper: %v", err)
		}
		if n := p.Counts(); n["gate"] != 1 || n["read"] != 0 {
			t.Errorf("%d puts of the session key and %d reads were sent, want 1 and 0 until the other attempt has its place",
				n["gate"], n["read"])
		}
		inFlight.inFlight = false
		if err := s.moveGate(t.Context(), lease, suspects); err != nil {
			t.Error(err)
		}
	})
}

// MinHold has an entry stand at a key that may also get a late one. A read tells them apart. What a copy may yet put
// stays a suspect, which is so while a full store refuses the session key.
func TestWhatTheSweeperFindsIsRemovedUnlessMinHoldKeepsIt(t *testing.T) {
	for name, c := range map[string]struct {
		stands, kept, final bool
		cleared, removed    bool
		claim               bool // stands
	}{
		"nothing stands, nothing can appear":        {final: true, cleared: true},
		"nothing stands, a copy may appear":         {},
		"an entry stands":                           {stands: true, final: true, cleared: true, removed: true},
		"an entry stands, another may appear":       {stands: true, removed: true},
		"the entry that is kept stands":             {stands: true, kept: true, final: true, cleared: true},
		"the entry that is kept, a copy may appear": {stands: true, kept: true},
		"the entry that was kept has gone":          {kept: true, final: true, cleared: true},
		"its claim stands, the entry was deleted":   {claim: true, final: true, cleared: true, removed: true},
		"its claim stands, another may appear":      {claim: true, removed: true},
		"both stand":                                {stands: true, claim: true, final: true, cleared: true, removed: true},
		"that one has gone, a copy may appear":      {kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := kit.Start(t, srv)
				keys, s := New(p.Host)
				e := newSuspect(p.Host.Lease(), "x", "claim")
				keys.Register(e.Key, e.Lease, e)
				s.suspects[&e.Suspect] = true
				stood := 0
				for _, key := range e.Keys {
					if key == e.Key && c.stands || key != e.Key && c.claim {
						srv.Put(key, "")
						stood++
						e.Kept = srv.Keys(key)[0].CreateRevision
					}
				}
				if !c.kept {
					e.Kept = 0
				}
				if err := s.removeStanding(t.Context(), []*Suspect{&e.Suspect}, c.final); err != nil {
					t.Fatal(err)
				}
				if cleared := !s.suspects[&e.Suspect]; cleared != c.cleared || (keys.at(e.Key) == nil) != c.cleared {
					t.Errorf("cleared: %v, and the key is in use by %v", cleared, keys.at(e.Key))
				}
				if n := len(srv.Keys("x")) + len(srv.Keys("claim")); n != stood && !c.removed || n != 0 && c.removed {
					t.Errorf("%d of %d keys stand", n, stood)
				}
			})
		})
	}
}

// etcd limits the operations of a Txn.
func TestSweeperReadsManyInBatches(t *testing.T) {
	const perRead = requests.MaxOps / 2 // of each its entry and its claim
	for n, want := range map[int]int{1: 1, perRead: 1, perRead + 1: 2, 2*perRead + 1: 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := kit.Start(t, srv)
				_, s := New(p.Host)
				var all []*Suspect
				for i := range n {
					e := &newSuspect(p.Host.Lease(), fmt.Sprint(i), fmt.Sprint(i, "c")).Suspect
					s.suspects[e] = true
					all = append(all, e)
				}
				p.Plan(nil)
				if err := s.sweep(t.Context(), all); err != nil {
					t.Fatal(err)
				}
				if reads := p.Counts()["read"]; reads != want || len(s.suspects) != 0 {
					t.Errorf("%d reads of %d keys, want %d; %d are still suspects", reads, n, want, len(s.suspects))
				}
			})
		})
	}
}

// Nothing else has to tell the session: its watches and renewals may be slow.
func TestSessionKeyThatIsRefusedForItsLeaseEndsTheLease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		_, s := New(p.Host)
		lease := p.Host.Lease()
		p.Unheard(srv, func() {
			srv.Revoke(lease.ID())
			err := s.moveGate(t.Context(), lease, []*Suspect{&unanswered("y", lease).Suspect})
			if lost := lease.Lost(); err == nil || lost == nil || lost.Cause != holdfast.CauseRevoked {
				t.Errorf("%v, and the loss is %v", err, lost)
			}
		})
	})
}

// What it would have removed has gone with the lease.
func TestSweeperThatFindsItsLeaseGoneReportsNoRefusal(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		p := kit.Start(t, srv, logTo(&log))
		_, s := New(p.Host)
		lease := p.Host.Lease()
		p.Unheard(srv, func() {
			srv.Revoke(lease.ID())
			e := unanswered("x", lease)
			s.suspects[&e.Suspect] = true
			s.run(t.Context())
			synctest.Wait() // the loss has been logged
			if len(s.suspects) != 0 || lease.Lost() == nil || strings.Contains(log.String(), "refuses to remove") {
				t.Errorf("%d suspects are left, the loss is %v; logged:\n%s", len(s.suspects), lease.Lost(), &log)
			}
		})
	})
}

// What was put with a lost lease expires with it.
func TestSweeperForgetsSuspectsOfALostLeaseAlone(t *testing.T) {
	t.Parallel()
	granted := func() *lease.Lease {
		return lease.New(lease.Origin{TTL: time.Minute}, func() time.Duration { return 0 })
	}
	keys, s := New(nil)
	lost, alive := newSuspect(granted(), "a"), newSuspect(granted(), "b")
	for _, e := range []*suspect{lost, alive} {
		keys.Register(e.Key, e.Lease, e)
		s.suspects[&e.Suspect] = true
	}
	s.running = true
	lost.Lease.Lose(holdfast.CauseRevoked, nil)
	left := s.suspectsLeft()
	if len(left) != 1 || left[0] != &alive.Suspect || keys.at("a") != nil || keys.at("b") != alive {
		t.Errorf("left are %v, the keys are in use by %v and %v", left, keys.at("a"), keys.at("b"))
	}
	alive.Lease.Lose(holdfast.CauseRevoked, nil)
	if left = s.suspectsLeft(); left != nil || keys.InUse() != 0 || s.running {
		t.Errorf("left are %v, %d keys are in use, the sweeper goes on: %v", left, keys.InUse(), s.running)
	}
}

// A session may live for months.
func TestRoundOfTheSweeperLeavesNothingThatListens(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		_, s := New(p.Host)
		ctx := &kit.Listened{Context: t.Context()}
		if err := s.sweep(ctx, []*Suspect{&newSuspect(p.Host.Lease(), "x").Suspect}); err != nil {
			t.Fatal(err)
		}
		ctx.NothingListens(t, "a round of the sweeper")
	})
}

// refuseReads has etcd refuse the first n reads of a key, and calls f before each of these.
func refuseReads(p *kit.Process, refusals map[string]int, f func()) {
	p.KV.Refuse(func(ops []clientv3.Op) error {
		for _, op := range ops {
			if key := string(op.KeyBytes()); op.IsGet() && refusals[key] > 0 {
				refusals[key]--
				f()
				return rpctypes.ErrPermissionDenied
			}
		}
		return nil
	})
}

func TestSweeperIsQuickAgainAfterARoundThatSucceeds(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv, func(o *session.Options) { o.Retry.Rand = func() float64 { return 0.99 } })
		keys, s := New(p.Host)
		srv.Put("a", "")
		srv.Put("b", "")
		// b is added while a is being removed, so the same run of the sweeper goes on with it.
		refusals := map[string]int{"a": 10, "b": 1}
		var removedA time.Time
		p.KV.Refuse(func(ops []clientv3.Op) error {
			for _, op := range ops {
				switch key := string(op.KeyBytes()); {
				case op.IsGet() && refusals[key] > 0:
					refusals[key]--
					return rpctypes.ErrPermissionDenied
				case op.IsDelete() && key == "a":
					removedA = time.Now()
					s.Add(&newSuspect(p.Host.Lease(), "b").Suspect)
				}
			}
			return nil
		})
		s.Add(&newSuspect(p.Host.Lease(), "a").Suspect)
		time.Sleep(time.Minute)
		synctest.Wait()
		if keys.InUse() != 0 || removedA.IsZero() || len(srv.Keys("b")) != 0 {
			t.Fatalf("a was removed at %v; b stands: %v", removedA, srv.Keys("b"))
		}
		if took := kit.DeletedAt(t, srv, "b").Sub(removedA); took > 8*kit.OneWay+20*time.Millisecond {
			t.Errorf("the second was removed after %v: the pauses are still those before the success", took)
		}
	})
}

// A refusal may be read when the session is closed already.
func TestSweeperEndsWithItsSessionAndLogsNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		p := kit.Start(t, srv, logTo(&log))
		_, s := New(p.Host)
		e := newSuspect(p.Host.Lease(), "x")
		s.suspects[&e.Suspect] = true
		ctx, cancel := context.WithCancel(t.Context())
		refuseReads(p, map[string]int{"x": 1000}, cancel)
		s.run(ctx)
		if !s.suspects[&e.Suspect] || strings.Contains(log.String(), "refuses to remove") {
			t.Errorf("suspects: %v; logged:\n%s", s.suspects, &log)
		}
	})
}
