package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// An Attach is an acquisition, and is measured as one.
func TestAttachIsCountedByItsOutcome(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var metrics kit.Metrics
		ticket, _, _ := detached(t, srv)
		p := holdtest.Start(t, srv, func(o *session.Options) { metrics = kit.CollectMetrics(o) })
		p.PlanAll("attach", holdtest.Silence)
		if _, err := p.Attach(kit.Within(t, time.Second), ticket, hold.Request{}); err == nil {
			t.Fatal("attached")
		}
		p.Plan(nil)
		h := p.MustAttach(t, ticket, hold.Request{})
		_, err := p.Attach(t.Context(), ticket, hold.Request{})
		wants(t, err, holdfast.TicketUsed)
		holdtest.MustRelease(t, h)
		points := metrics.Points(t)
		if points["replies.ambiguous kind=lock,request=move"] != 1 {
			t.Errorf("of the call without a reply: %v", points)
		}
		for _, outcome := range []string{"canceled", "held", "failed"} {
			if points["acquire.duration kind=lock,outcome="+outcome] != 1 {
				t.Errorf("%s: %v", outcome, points)
			}
		}
	})
}

// What cannot be sent is refused before anything is.
func TestAttachThatCannotBeUsedSaysWhy(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ticket, _, p := detached(t, srv)
		p.Plan(nil)
		var argument *holdfast.ArgumentError
		_, err := hold.Attach(t.Context(), queue.OfTicket(nil, ticket), ticket, hold.Request{})
		if !errors.As(err, &argument) || argument.Argument != "sess" {
			t.Errorf("without a session: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Attach(ctx, ticket, hold.Request{}); !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that has ended: %v", err)
		}
		if n := p.Counts(); n["attach"] != 0 || n["read"] != 0 {
			t.Errorf("requests: %v", n)
		}
	})
}

// People see who holds now, and since when the work is under way.
func TestAttachedEntryHasTheTimesOfItsTicket(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ticket, _, _ := detached(t, srv)
		time.Sleep(time.Minute)
		h := holdtest.Start(t, srv).MustAttach(t, ticket, hold.Request{Request: queue.Request{Owner: "me"}})
		v, ok := layout.DecodeValue(srv.Keys(h.Key())[0].Value)
		if !ok || v.Owner != "me" || !v.Queued.Equal(ticket.Queued) || !v.Held.Equal(ticket.Held) {
			t.Errorf("%+v, of %+v", v, ticket)
		}
		holdtest.MustRelease(t, h)
	})
}

// The caller goes as the reply arrives, or while the session is suspended. Then the entry was moved, so it goes.
func TestAttachThatEndsAfterItsReplyLeavesNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ticket, _, _ := detached(t, srv)
		p := holdtest.Start(t, srv)
		p.PlanOne("attach", etcdfake.Fate{Reply: 10 * kit.OneWay})
		_, err := p.Attach(kit.Within(t, 6*kit.OneWay), ticket, hold.Request{})
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, holdfast.ErrOutcomeUnknown) ||
			!strings.Contains(err.Error(), "its entry is removed") {
			t.Error(err)
		}
		if n := p.Counts()["attach"]; n != 1 {
			t.Errorf("%d requests", n)
		}
		kit.NothingStands(t, srv)
		_, err = p.Attach(t.Context(), ticket, hold.Request{})
		wants(t, err, holdfast.TicketUsed)
	})
}

// Another call of this session holds by the ticket. The end of this one takes nothing from it.
func TestAttachOfATicketInUseEndsWithItsContext(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ticket, _, _ := detached(t, srv)
		p := holdtest.Start(t, srv)
		p.PlanAll("attach", etcdfake.Fate{Request: 3 * time.Second})
		first := make(chan *hold.Hold, 1)
		go func() { // ends soon: the test receives from first
			h, _ := p.Attach(t.Context(), ticket, hold.Request{})
			first <- h
		}()
		time.Sleep(kit.OneWay)
		_, err := p.Attach(kit.Within(t, time.Second), ticket, hold.Request{})
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, holdfast.ErrOutcomeUnknown) ||
			!strings.Contains(err.Error(), "attaches the ticket already") ||
			strings.Contains(err.Error(), "its entry is removed") {
			t.Error(err)
		}
		h := <-first
		if h == nil {
			t.Fatal("the first call has failed")
		}
		if _, err := p.Attach(t.Context(), ticket, hold.Request{}); err == nil {
			t.Error("attached twice")
		}
		isOn(t, srv, p, h)
		holdtest.MustRelease(t, h)
		kit.NothingStands(t, srv)
	})
}

// No lease comes, so there is nothing to attach to.
func TestAttachWithoutALeaseEndsWithItsContext(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ticket, _, _ := detached(t, srv)
		p := holdtest.Start(t, srv)
		p.PlanAll("LeaseGrant", holdtest.Silence)
		lost := p.Host.Lease()
		srv.Revoke(lost.ID())
		<-lost.Context().Done()
		_, err := p.Attach(kit.Within(t, time.Second), ticket, hold.Request{})
		if !errors.Is(err, context.DeadlineExceeded) || p.Counts()["attach"] != 0 {
			t.Errorf("%v, with %v", err, p.Counts())
		}
	})
}

// What another call has is read, and etcd does not answer.
func TestAttachOfATicketInUseWithoutAReply(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ticket, _, _ := detached(t, srv)
		p := holdtest.Start(t, srv)
		h := p.MustAttach(t, ticket, hold.Request{})
		p.PlanAll("read", holdtest.Silence)
		_, err := p.Attach(kit.Within(t, time.Second), ticket, hold.Request{})
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Error(err)
		}
		p.Plan(nil)
		holdtest.MustRelease(t, h)
	})
}

// Etcd refuses the claim on a lease that it no longer has, and so tells the session of its loss.
func TestAttachWithALeaseOfClaimsThatIsGoneTellsTheSession(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ticket, h, _ := detached(t, srv)
		p := holdtest.Start(t, srv)
		srv.Revoke(p.Host.Lease().Claims)
		began := time.Now()
		_, err := p.Attach(kit.Within(t, time.Minute), ticket, hold.Request{})
		if took := time.Since(began); !errors.Is(err, holdfast.ErrLost) || took > 6*kit.OneWay {
			t.Errorf("after %v: %v", took, err)
		}
		if leaseOf(srv, h.Key()) != ticket.Lease {
			t.Error("the entry is not where Detach has put it")
		}
	})
}

// The first copy has no reply. The second is refused, since the entry is gone. Once etcd has said how the ticket has
// ended, the outcome is known: the first cannot be carried out any more.
func TestAttachThatIsRefusedHasAKnownOutcome(t *testing.T) {
	const short, long = 7 * time.Second, 30 * time.Second
	for silent, within := range map[time.Duration]time.Duration{time.Hour: long, short: time.Minute} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			ticket, _, _ := detached(t, srv)
			p, began := holdtest.Start(t, srv), time.Now()
			p.Plan(func(kind string, n int) etcdfake.Fate {
				if kind == "attach" && n == 1 || kind == "LeaseTimeToLive" && time.Since(began) < silent {
					return holdtest.Silence
				}
				return etcdfake.Fate{}
			})
			srv.Delete(ticket.Key)
			_, err := p.Attach(kit.Within(t, within), ticket, hold.Request{})
			if p.Counts()["attach"] < 2 {
				t.Errorf("requests: %v", p.Counts())
			}
			if within < silent { // the ticket may have been used, and the entry deleted since
				if !errors.Is(err, holdfast.ErrOutcomeUnknown) || errors.As(err, new(*holdfast.TicketError)) {
					t.Error(err)
				}
				return
			}
			if wants(t, err, holdfast.TicketUsed); errors.Is(err, holdfast.ErrOutcomeUnknown) {
				t.Error(err)
			}
		})
	}
}

// A copy without a reply may be carried out yet, whatever etcd says of another one. So may one of which etcd says that
// it took too long. What etcd has refused has not been.
func TestAttachSaysIfItsOutcomeIsUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		silent  int // copies
		err     error
		unknown bool
	}{
		"refused":                           {0, rpctypes.ErrPermissionDenied, false},
		"refused, beside one without reply": {1, rpctypes.ErrPermissionDenied, true},
		"took too long":                     {0, rpctypes.ErrTimeout, true},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				ticket, _, _ := detached(t, srv)
				p := holdtest.Start(t, srv)
				sent := 0
				p.KV.Refuse(func(ops []clientv3.Op) error {
					if !ops[0].IsPut() || string(ops[0].KeyBytes()) != ticket.Key {
						return nil
					}
					if sent++; sent <= c.silent {
						return nil
					}
					return c.err
				})
				p.PlanAll("attach", holdtest.Silence)
				_, err := p.Attach(kit.Within(t, 20*time.Second), ticket, hold.Request{})
				if err == nil || errors.Is(err, holdfast.ErrOutcomeUnknown) != c.unknown ||
					strings.Contains(err.Error(), "its entry is removed") {
					t.Error(err)
				}
			})
		})
	}
}

// The first copy was carried out without a reply, and the entry was deleted by hand. Its claim is not left: the next
// one would wait for a holder that there is not.
func TestAttachThatIsRefusedLeavesNoClaim(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ticket, h, _ := detached(t, srv)
		p := holdtest.Start(t, srv)
		p.PlanOne("attach", etcdfake.Fate{LoseReply: true, Silent: true})
		time.AfterFunc(2*kit.OneWay, func() { srv.Delete(h.Key()) })
		_, err := p.Attach(kit.Within(t, time.Minute), ticket, hold.Request{})
		wants(t, err, holdfast.TicketUsed)
		if leaseOf(srv, kit.ClaimOf(h.Key())) != p.Host.Lease().Claims {
			t.Error("the claim was not moved: this tests nothing")
		}
		time.Sleep(time.Minute)
		kit.NothingStands(t, srv)
	})
}

// An administrator rings the bell of the session, by a put of its key, and the watch does not tell. Attach learns the
// new gate from its own reply, so its next copy gets in.
func TestAttachReadsTheGateThatNoWatchTells(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ticket, _, _ := detached(t, srv)
		p := holdtest.Start(t, srv, func(o *session.Options) { o.TTL = 5 * time.Minute })
		p.PlanAll("event", etcdfake.Fate{LoseReply: true, Silent: true})
		l := p.Host.Lease()
		if _, err := srv.Client(t).Put(t.Context(), l.Key(), "", clientv3.WithLease(l.ID())); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		h := p.MustAttach(t, ticket, hold.Request{})
		if took := time.Since(began); took > time.Second || p.Counts()["attach"] != 2 {
			t.Errorf("after %v, with %v", took, p.Counts())
		}
		holdtest.MustRelease(t, h)
	})
}
