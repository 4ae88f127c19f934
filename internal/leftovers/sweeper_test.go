package leftovers

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
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

var discard = slog.New(slog.DiscardHandler)

// suspect is a Suspect without a queue.
type suspect struct {
	key, claim   string
	lease        *lease.Lease
	inFlight     bool
	unansweredAt int64
	kept         int64
	found        []int64 // what was to be removed
	whenFound    func()
	log          *slog.Logger
}

func (s *suspect) Key() string         { return s.key }
func (s *suspect) Keys() []string      { return []string{s.key, cmp.Or(s.claim, s.key)} }
func (s *suspect) Lease() *lease.Lease { return s.lease }
func (s *suspect) InFlight() bool      { return s.inFlight }
func (s *suspect) UnansweredAt() int64 { return s.unansweredAt }
func (s *suspect) Kept() int64         { return s.kept }
func (s *suspect) Log() *slog.Logger   { return cmp.Or(s.log, discard) }

func (s *suspect) RemoveFound(kv *mvccpb.KeyValue) {
	s.found = append(s.found, kv.CreateRevision)
	if s.whenFound != nil {
		s.whenFound()
	}
}

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
		keys, s, _ := New(p.Host, nil)
		lease := p.Host.Lease()
		inFlight := &suspect{key: "x", lease: lease, inFlight: true}
		keys.Register("x", lease, inFlight)
		suspects := []Suspect{&suspect{lease: lease, unansweredAt: lease.Gate()}}
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
		cleared, found      bool
		claim               bool // stands
	}{
		"nothing stands, nothing can appear":        {final: true, cleared: true},
		"nothing stands, a copy may appear":         {},
		"an entry stands":                           {stands: true, final: true, cleared: true, found: true},
		"an entry stands, another may appear":       {stands: true, cleared: true, found: true},
		"the entry that is kept stands":             {stands: true, kept: true, final: true, cleared: true},
		"the entry that is kept, a copy may appear": {stands: true, kept: true},
		"the entry that was kept has gone":          {kept: true, final: true, cleared: true},
		"its claim stands, the entry was deleted":   {claim: true, final: true, cleared: true, found: true},
		"its claim stands, another may appear":      {claim: true, cleared: true, found: true},
		"both stand":                                {stands: true, claim: true, final: true, cleared: true, found: true},
		"that one has gone, a copy may appear":      {kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := kit.Start(t, srv)
				keys, s, _ := New(p.Host, nil)
				e := &suspect{key: "x", claim: "claim", lease: p.Host.Lease()}
				keys.Register(e.key, e.lease, e)
				s.suspects[e] = true
				var want []int64
				for _, key := range []string{e.key, e.claim} {
					if key == e.key && c.stands || key == e.claim && c.claim {
						srv.Put(key, "")
						want = append(want, srv.Keys(key)[0].CreateRevision)
					}
				}
				want = want[:min(1, len(want))] // they have one revision, as a rule
				if c.kept {
					e.kept = cmp.Or(append(want, 1)...)
				}
				if !c.found {
					want = nil
				}
				if err := s.removeStanding(t.Context(), []Suspect{e}, c.final); err != nil {
					t.Fatal(err)
				}
				if cleared := !s.suspects[e]; cleared != c.cleared || (keys.At(e.key) == nil) != c.cleared {
					t.Errorf("cleared: %v, and the key is in use by %v", cleared, keys.At(e.key))
				}
				if !slices.Equal(e.found, want) {
					t.Errorf("entries of revisions %v were to be removed, want %v", e.found, want)
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
				_, s, _ := New(p.Host, nil)
				var all []Suspect
				for i := range n {
					e := &suspect{key: fmt.Sprint(i), lease: p.Host.Lease()}
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
		_, s, _ := New(p.Host, nil)
		lease := p.Host.Lease()
		p.Unheard(srv, func() {
			srv.Revoke(lease.ID())
			err := s.moveGate(t.Context(), lease, []Suspect{&suspect{lease: lease, unansweredAt: lease.Gate()}})
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
		_, s, _ := New(p.Host, nil)
		lease := p.Host.Lease()
		p.Unheard(srv, func() {
			srv.Revoke(lease.ID())
			s.suspects[&suspect{key: "x", lease: lease, unansweredAt: lease.Gate(), log: p.Host.Logger()}] = true
			s.run(t.Context())
			if len(s.suspects) != 0 || lease.Lost() == nil || strings.Contains(log.String(), "refuses to clean up") {
				t.Errorf("%d suspects are left, the loss is %v; logged:\n%s", len(s.suspects), lease.Lost(), &log)
			}
		})
	})
}

// What was put with a lost lease expires with it.
func TestSweeperForgetsSuspectsOfALostLeaseAlone(t *testing.T) {
	t.Parallel()
	granted := func() *lease.Lease {
		return lease.New(lease.Grant{TTL: time.Minute}, func() time.Duration { return 0 })
	}
	keys, s, _ := New(nil, nil)
	lost, alive := &suspect{key: "a", lease: granted()}, &suspect{key: "b", lease: granted()}
	for _, e := range []*suspect{lost, alive} {
		keys.Register(e.key, e.lease, e)
		s.suspects[e] = true
	}
	s.running = true
	lost.lease.Lose(holdfast.CauseRevoked, nil)
	if left := s.suspectsLeft(); len(left) != 1 || left[0] != alive || keys.At("a") != nil || keys.At("b") != alive {
		t.Errorf("left are %v, the keys are in use by %v and %v", left, keys.At("a"), keys.At("b"))
	}
	alive.lease.Lose(holdfast.CauseRevoked, nil)
	if left := s.suspectsLeft(); left != nil || keys.InUse() != 0 || s.running {
		t.Errorf("left are %v, %d keys are in use, the sweeper goes on: %v", left, keys.InUse(), s.running)
	}
}

// A session may live for months.
func TestRoundOfTheSweeperLeavesNothingThatListens(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		_, s, _ := New(p.Host, nil)
		ctx := &kit.Listened{Context: t.Context()}
		if err := s.sweep(ctx, []Suspect{&suspect{key: "x", lease: p.Host.Lease()}}); err != nil {
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
		_, s, _ := New(p.Host, nil)
		refuseReads(p, map[string]int{"a": 10, "b": 1}, func() {})
		var found []time.Time
		note := func() { found = append(found, time.Now()) }
		b := &suspect{key: "b", lease: p.Host.Lease(), whenFound: note}
		a := &suspect{key: "a", lease: b.lease, whenFound: func() { note(); s.Add(b) }}
		srv.Put("a", "")
		srv.Put("b", "")
		s.Add(a)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(found) != 2 {
			t.Fatalf("%d entries were found, want 2", len(found))
		}
		if took := found[1].Sub(found[0]); took > 5*kit.OneWay+20*time.Millisecond {
			t.Errorf("the second was found after %v: the pauses are still those before the success", took)
		}
	})
}

// A refusal may be read when the session is closed already.
func TestSweeperEndsWithItsSessionAndLogsNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		p := kit.Start(t, srv, logTo(&log))
		_, s, _ := New(p.Host, nil)
		e := &suspect{key: "x", lease: p.Host.Lease(), log: p.Host.Logger()}
		s.suspects[e] = true
		ctx, cancel := context.WithCancel(t.Context())
		refuseReads(p, map[string]int{"x": 1000}, cancel)
		s.run(ctx)
		if !s.suspects[e] || strings.Contains(log.String(), "refuses to clean up") {
			t.Errorf("suspects: %v; logged:\n%s", s.suspects, &log)
		}
	})
}
