package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// detached returns the ticket of lock x, which a process of its own has held.
func detached(t *testing.T, srv *etcdfake.Server) (layout.Ticket, *hold.Hold, *holdtest.Process) {
	t.Helper()
	p := holdtest.Start(t, srv)
	h := holdtest.MustAcquire(t, p.Queue("x"))
	return holdtest.MustDetach(t, h, time.Hour), h, p
}

// leaseOf is the lease that a key is on; 0 if it does not stand.
func leaseOf(srv *etcdfake.Server, key string) clientv3.LeaseID {
	for _, kv := range srv.Keys(key) {
		return clientv3.LeaseID(kv.Lease)
	}
	return clientv3.NoLease
}

// isOn fails the test unless an entry and its claim are on the leases of a session, the claim names it, and the create
// revision is that of the put.
func isOn(t *testing.T, srv *etcdfake.Server, p *holdtest.Process, h *hold.Hold) {
	t.Helper()
	l := p.Host.Lease()
	if leaseOf(srv, h.Key()) != l.ID() || leaseOf(srv, kit.ClaimOf(h.Key())) != l.Claims {
		t.Fatalf("entry on %x, claim on %x; want %x and %x", leaseOf(srv, h.Key()), leaseOf(srv, kit.ClaimOf(h.Key())),
			l.ID(), l.Claims)
	}
	claim := srv.Keys(kit.ClaimOf(h.Key()))[0]
	if says := layout.DecodeClaim(claim.Value); says.Session != l.ID() || says.LockDelay != kit.LockDelay ||
		claim.CreateRevision != h.Created() {
		t.Errorf("the claim, created at %d, says %+v", claim.CreateRevision, says)
	}
}

func wants(t *testing.T, err error, end holdfast.TicketEnd) {
	t.Helper()
	var ended *holdfast.TicketError
	if !errors.As(err, &ended) || ended.End != end {
		t.Errorf("%v, want %q", err, end)
	}
}

// One request moves both keys, with their place and token.
func TestAttachMovesEntryAndClaim(t *testing.T) {
	for name, c := range map[string]struct {
		queueOf func(p *holdtest.Process) *queue.Queue
	}{
		"a writer": {func(p *holdtest.Process) *queue.Queue { return p.Queue("x") }},
		"a reader": {func(p *holdtest.Process) *queue.Queue { return p.Readers("x") }},
		"a permit": {func(p *holdtest.Process) *queue.Queue { return p.Permits(3, 2) }},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p, q := holdtest.Start(t, srv), holdtest.Start(t, srv)
				h := holdtest.MustAcquire(t, c.queueOf(p))
				ticket := holdtest.MustDetach(t, h, time.Hour)
				holdtest.MustClose(t, p)
				q.Plan(nil)
				again := q.MustAttach(t, ticket, hold.Request{})
				if n := q.Counts(); n["attach"] != 1 || n["read"] != 0 {
					t.Errorf("requests: %v", n)
				}
				if again.Token() != h.Token() || again.Created() != h.Created() || again.Key() != h.Key() {
					t.Errorf("%v has become %v", h, again)
				}
				isOn(t, srv, q, again)
				time.Sleep(2 * time.Minute) // polls and renewals leave it where it is
				if again.Check() != nil {
					t.Error(again.Check())
				}
				holdtest.MustRelease(t, again)
				kit.NothingStands(t, srv)
			})
		})
	}
}

// A permit that has waited is a turn, marked by its second put. It keeps its key, its weight and its room.
func TestTurnThatWasMarkedIsDetachedAndAttached(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, q := holdtest.Start(t, srv), holdtest.Start(t, srv)
		first := holdtest.MustAcquire(t, p.Permits(2, 2))
		turn := holdtest.AcquireLater(t.Context(), p.Permits(2, 2))
		kit.Queued(t, srv, kit.Permits("x"), 2)
		last := holdtest.AcquireLater(t.Context(), q.Permits(2, 1))
		kit.Queued(t, srv, kit.Permits("x"), 3)
		holdtest.MustRelease(t, first)
		h := (<-turn).H
		again := q.MustAttach(t, holdtest.MustDetach(t, h, time.Hour), hold.Request{})
		if again.Key() != h.Key() || layout.WeightOf(again.Key()) != 2 {
			t.Errorf("%v has become %v", h, again)
		}
		holdtest.StaysQueued(t, last, "the last one")
		srv.Revoke(q.Sess.Lease()) // the last one waits in the same session: it queues again
		<-again.Done()
		r := <-last
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if gone := kit.DeletedAt(t, srv, h.Key()); r.At.Sub(gone) < kit.LockDelay {
			t.Errorf("held %v after the loss of what was attached", r.At.Sub(gone))
		}
		holdtest.MustRelease(t, r.H)
	})
}

func TestAttachWithLostMessages(t *testing.T) {
	for name, fate := range map[string]etcdfake.Fate{
		"the request is lost":  {LoseRequest: true},
		"the reply is lost":    holdtest.LostReply,
		"nothing answers":      holdtest.Silence,
		"the reply is silence": {LoseReply: true, Silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				ticket, _, _ := detached(t, srv)
				p := holdtest.Start(t, srv)
				p.PlanOne("attach", fate)
				h := p.MustAttach(t, ticket, hold.Request{})
				if p.Counts()["attach"] < 2 {
					t.Errorf("requests: %v", p.Counts())
				}
				isOn(t, srv, p, h)
				_, err := holdtest.Start(t, srv).Attach(t.Context(), ticket, hold.Request{})
				wants(t, err, holdfast.TicketUsed)
				holdtest.MustRelease(t, h)
				kit.NothingStands(t, srv)
			})
		})
	}
}

// etcd is away, so the call ends by its context. If nothing was carried out, the ticket stays good; otherwise it is
// used, and the entry goes. A copy that comes later does nothing: the session key was put again.
func TestAttachThatIsGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		fate etcdfake.Fate
		good bool
	}{
		"the request is lost":    {holdtest.Silence, true},
		"the request comes late": {etcdfake.Fate{Request: 30 * time.Second}, true},
		"the reply is lost":      {etcdfake.Fate{LoseReply: true, Silent: true}, false},
		"it comes before the sweep": {
			etcdfake.Fate{Request: time.Second + 2*kit.OneWay, LoseReply: true, Silent: true}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				ticket, h, _ := detached(t, srv)
				p := holdtest.Start(t, srv)
				p.PlanAll("attach", c.fate)
				_, err := p.Attach(kit.Within(t, time.Second), ticket, hold.Request{})
				if !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				p.Plan(nil)
				time.Sleep(40 * time.Second)
				if !c.good {
					kit.NothingStands(t, srv)
					_, err = p.Attach(t.Context(), ticket, hold.Request{})
					wants(t, err, holdfast.TicketUsed)
					return
				}
				if leaseOf(srv, h.Key()) != ticket.Lease {
					t.Fatal("the entry is not where Detach has put it")
				}
				holdtest.MustRelease(t, p.MustAttach(t, ticket, hold.Request{}))
				kit.NothingStands(t, srv)
			})
		})
	}
}

// The same session tries again at once. Until it has swept what it gave up, it must not: the sweeper would take what
// the second call attaches for what the first has left.
func TestAttachAgainWaitsUntilTheFirstIsSwept(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ticket, _, _ := detached(t, srv)
		p := holdtest.Start(t, srv)
		p.Plan(func(kind string, n int) etcdfake.Fate {
			switch {
			case kind == "attach" && n <= 3:
				return holdtest.Silence
			case kind == "gate":
				return etcdfake.Fate{Request: 3 * time.Second}
			}
			return etcdfake.Fate{}
		})
		if _, err := p.Attach(kit.Within(t, 100*time.Millisecond), ticket, hold.Request{}); err == nil {
			t.Fatal("attached")
		}
		began := time.Now()
		h := p.MustAttach(t, ticket, hold.Request{})
		if took := time.Since(began); took < 2*time.Second {
			t.Errorf("attached after %v, with %v", took, p.Counts())
		}
		time.Sleep(time.Minute)
		isOn(t, srv, p, h)
		holdtest.MustRelease(t, h)
	})
}

// Another session has attached it meanwhile, perhaps the one that has detached it. What was given up leaves that alone.
func TestAttachThatIsGivenUpSparesWhatAnotherSessionAttaches(t *testing.T) {
	for name, same := range map[string]bool{"the first session": true, "a third session": false} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				ticket, _, first := detached(t, srv)
				p, q := holdtest.Start(t, srv), holdtest.Start(t, srv)
				if same {
					q = first
				}
				p.PlanAll("attach", holdtest.Silence)
				gaveUp := make(chan error, 1)
				go func() { // ends with its context
					_, err := p.Attach(kit.Within(t, time.Second), ticket, hold.Request{})
					gaveUp <- err
				}()
				time.Sleep(500 * time.Millisecond)
				h := q.MustAttach(t, ticket, hold.Request{})
				<-gaveUp
				p.Plan(nil)
				time.Sleep(time.Minute)
				if err := h.Check(); err != nil {
					t.Error(err)
				}
				isOn(t, srv, q, h)
			})
		})
	}
}

// The session key is put again, by hand or by the sweeper, while the Txn is on its way.
func TestAttachFollowsTheGate(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ticket, _, _ := detached(t, srv)
		p := holdtest.Start(t, srv)
		srv.Delete(p.SessionKey())
		holdtest.MustRelease(t, p.MustAttach(t, ticket, hold.Request{}))
	})
}

// The entry may have been deleted since, so it is looked at again.
func TestAttachDoesNotHoldByAReplyThatIsOld(t *testing.T) {
	for name, deleted := range map[string]bool{"the entry stands": false, "the entry was deleted meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				ticket, h, _ := detached(t, srv)
				p := &holdtest.Process{Process: kit.StartQuiet(t, srv)} // whose writes take as long as they do
				p.PlanAll("attach", etcdfake.Fate{Reply: lease.LookLasts(kit.LockDelay)})
				began := time.Now()
				if deleted {
					time.AfterFunc(time.Second, func() { srv.Delete(h.Key()) })
				}
				again, err := p.Attach(kit.Within(t, time.Minute), ticket, hold.Request{})
				if deleted {
					wants(t, err, holdfast.TicketUsed)
					kit.NothingStands(t, srv)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if p.Counts()["read"] == 0 {
					t.Errorf("held after %v by a reply that is old: %v", time.Since(began), p.Counts())
				}
				holdtest.MustRelease(t, again)
			})
		})
	}
}

// Beside another permit it holds all the same: a look by the rules of permits tells.
func TestAttachOfAPermitDoesNotHoldByAReplyThatIsOld(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		first := holdtest.MustAcquire(t, p.Permits(2, 1))
		ticket := holdtest.MustDetach(t, holdtest.MustAcquire(t, p.Permits(2, 1)), time.Hour)
		q := &holdtest.Process{Process: kit.StartQuiet(t, srv)}
		q.PlanAll("attach", etcdfake.Fate{Reply: lease.LookLasts(kit.LockDelay)})
		h, err := q.Attach(kit.Within(t, time.Minute), ticket, hold.Request{})
		if err != nil {
			t.Fatal(err)
		}
		holdtest.MustRelease(t, h)
		holdtest.MustRelease(t, first)
		kit.NothingStands(t, srv)
	})
}

// The session loses its lease on the way: the entry goes with it, or the ticket stays good.
func TestAttachUnderALeaseThatIsLostMeanwhile(t *testing.T) {
	for name, fate := range map[string]etcdfake.Fate{
		"nothing was carried out": holdtest.Silence,
		"it was carried out":      {LoseReply: true, Silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				ticket, h, _ := detached(t, srv)
				p := holdtest.Start(t, srv)
				p.PlanAll("attach", fate)
				time.AfterFunc(time.Second, func() { srv.Revoke(p.Sess.Lease()) })
				if _, err := p.Attach(kit.Within(t, time.Minute), ticket, hold.Request{}); !errors.Is(err, holdfast.ErrLost) {
					t.Errorf("Attach: %v", err)
				}
				p.Plan(nil)
				time.Sleep(time.Minute)
				if fate.LoseReply {
					kit.NothingStands(t, srv)
				} else if leaseOf(srv, h.Key()) != ticket.Lease {
					t.Error("the entry is not where Detach has put it")
				}
			})
		})
	}
}

// A claim that was deleted by hand is not put anew: with a create revision of its own it would delay the next one.
func TestAttachPutsNoClaimThatIsGone(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ticket, h, p := detached(t, srv)
		srv.Delete(kit.ClaimOf(h.Key()))
		again := p.MustAttach(t, ticket, hold.Request{})
		if leaseOf(srv, kit.ClaimOf(h.Key())) != clientv3.NoLease {
			t.Error("the claim stands")
		}
		holdtest.MustRelease(t, again)
	})
}

// A Kick comes between the Txn of an Attach, whose reply is lost, and its copy. Nothing holds yet that would be told of
// it, and no poll would find it later: the attempt would take the notice for its own value.
func TestAttachDoesNotHoldByAnEntryThatAnAdministratorWantsBack(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ticket, h, _ := detached(t, srv)
		q := holdtest.Start(t, srv)
		q.PlanOne("attach", etcdfake.Fate{LoseReply: true, Silent: true})
		failed := make(chan error, 1)
		go func() { // received below
			_, err := q.Attach(kit.Within(t, time.Minute), ticket, hold.Request{})
			failed <- err
		}()
		time.Sleep(3 * kit.OneWay)
		kv := srv.Keys(h.Key())[0]
		if kv.Lease != int64(q.Host.Lease().ID()) {
			t.Fatalf("not attached yet: %v", kv)
		}
		holdtest.Notify(t, srv, kv, layout.Notice{By: "ops", Reason: "stuck"})
		wants(t, <-failed, holdfast.TicketUsed)
		time.Sleep(10 * kit.OneWay)
		kit.NothingStands(t, srv)
	})
}
