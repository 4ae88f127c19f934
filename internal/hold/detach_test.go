package hold_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// on returns the leases that the entry and the claim of a hold are on; 0 for one that does not stand.
func on(srv *etcdfake.Server, entry string) (leases [2]clientv3.LeaseID) {
	for i, key := range []string{entry, kit.ClaimOf(entry)} {
		for _, kv := range srv.Keys(key) {
			leases[i] = clientv3.LeaseID(kv.Lease)
		}
	}
	return leases
}

// longest is the lease that expires last: that of a ticket for an hour, if there is one.
func longest(t *testing.T, srv *etcdfake.Server) clientv3.LeaseID {
	t.Helper()
	all, err := srv.Client(t).Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all.Leases[len(all.Leases)-1].ID // in that order
}

// The work has ended before anything is sent, so none holds from the first request on. Nothing is left at the caller's
// context.
func TestDetachEndsTheHoldBeforeItSends(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		ctx, cancel := h.Context(t.Context(), false)
		defer cancel()
		sent := 0
		p.Plan(func(kind string, _ int) etcdfake.Fate {
			if kind == "LeaseGrant" || kind == "detach" {
				sent++
				if ctx.Err() == nil || h.Live() {
					t.Errorf("%s is sent while the hold lives", kind)
				}
			}
			return etcdfake.Fate{}
		})
		caller := &kit.Listened{Context: t.Context()}
		if _, err := h.Detach(caller, 24*time.Hour); err != nil { // the longest time
			t.Error(err)
		}
		caller.NothingListens(t, "Detach")
		if p.Plan(nil); sent != 2 {
			t.Errorf("%d requests, want the Grant and the Txn", sent)
		}
	})
}

// Entry and claim are on one lease of that time, and go in one revision. None holds, so none is delayed.
func TestNextHoldsAtOnceWhenATicketRunsOut(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, q := holdtest.Start(t, srv), holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		next := holdtest.AcquireLater(t.Context(), q.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		began := time.Now()
		ticket := holdtest.MustDetach(t, h, time.Minute)
		if is := on(srv, h.Key()); is != [2]clientv3.LeaseID{ticket.Lease, ticket.Lease} {
			t.Errorf("entry and claim are on %x, the ticket's is %x", is, ticket.Lease)
		}
		v, _ := layout.DecodeValue(srv.Keys(h.Key())[0].Value)
		if v.DetachedUntil.Before(began.Add(time.Minute-time.Second)) || v.Held.IsZero() || !v.Released.IsZero() {
			t.Errorf("the value says %+v", v)
		}
		holdtest.MustClose(t, p)
		r := holdtest.Granted(t, srv, next)
		if took := time.Since(began); took < time.Minute || took > time.Minute+kit.LockDelay/2 {
			t.Errorf("the next one holds %v after the Detach", took)
		}
		holdtest.MustRelease(t, r.H)
		var ended *holdfast.TicketError
		if _, err := q.Attach(t.Context(), ticket, hold.Request{}); !errors.As(err, &ended) ||
			ended.End != holdfast.TicketExpired {
			t.Errorf("attached late: %v", err)
		}
	})
}

// What becomes of the Grant and of the Txn on the way changes nothing: the entry is put again once.
func TestDetachWithLostMessages(t *testing.T) {
	for name, c := range map[string]struct {
		kind      string
		fate      etcdfake.Fate
		ambiguous int64 // replies, as an operator counts them
	}{
		"the Txn is lost":                {"detach", etcdfake.Fate{LoseRequest: true}, 1},
		"the reply to the Txn is lost":   {"detach", holdtest.LostReply, 1},
		"nothing answers the Txn":        {"detach", holdtest.Silence, 0}, // but a copy is answered
		"the Grant is lost":              {"LeaseGrant", etcdfake.Fate{LoseRequest: true}, 0},
		"the reply to the Grant is lost": {"LeaseGrant", holdtest.LostReply, 0},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				var metrics kit.Metrics
				p := holdtest.Start(t, srv, func(o *session.Options) { metrics = kit.CollectMetrics(o) })
				h := holdtest.MustAcquire(t, p.Queue("x"))
				p.PlanOne(c.kind, c.fate)
				ticket := holdtest.MustDetach(t, h, time.Hour)
				if p.Counts()[c.kind] < 2 {
					t.Fatalf("requests: %v", p.Counts())
				}
				kv := srv.Keys(h.Key())[0]
				if kv.ModRevision != ticket.Mod || kv.Lease != int64(ticket.Lease) || kv.Version != 2 {
					t.Errorf("ticket %+v, in etcd %v", ticket, kv)
				}
				if n := metrics.Points(t)["replies.ambiguous kind=lock,request=move"]; n != c.ambiguous {
					t.Errorf("%d replies are counted as ambiguous, want %d", n, c.ambiguous)
				}
				holdtest.MustRelease(t, holdtest.Start(t, srv).MustAttach(t, ticket, hold.Request{}))
				kit.NothingStands(t, srv)
			})
		})
	}
}

// Since when it is held is written into each entry a second after the grant, perhaps right before the Detach.
func TestDetachOfAnEntryThatWasJustWrittenTo(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		p.PlanAll("held", etcdfake.Fate{Reply: time.Minute})
		for srv.Keys(h.Key())[0].ModRevision == h.Created() {
			time.Sleep(kit.OneWay)
		}
		ticket := holdtest.MustDetach(t, h, time.Hour)
		p.Plan(nil)
		holdtest.MustRelease(t, p.MustAttach(t, ticket, hold.Request{}))
	})
}

// An administrator was faster: the hold ends with that, and its entry goes.
func TestDetachAfterANoticeIsKicked(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		n := layout.Notice{By: "me", Reason: "to test", At: time.Now()}
		holdtest.Notify(t, srv, srv.Keys(h.Key())[0], n)
		var kicked *holdfast.KickError
		_, err := h.Detach(t.Context(), time.Hour)
		if isLoss(t, err); !errors.As(err, &kicked) || kicked.By != n.By {
			t.Errorf("Detach: %v", err)
		}
		kit.NothingStands(t, srv)
	})
}

// The poller has read the notice, and waits for the end that Detach has begun. Then it records the revision.
func TestDetachBesideANoticeThatIsBeingReadIsKicked(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		h.OnStop(func() {
			holdtest.Notify(t, srv, srv.Keys(h.Key())[0], layout.Notice{By: "me", Reason: "to test", At: time.Now()})
			hold.NoteModified(h, srv.Keys(h.Key())[0].ModRevision)
		})
		var kicked *holdfast.KickError
		_, err := h.Detach(t.Context(), time.Hour)
		if isLoss(t, err); !errors.As(err, &kicked) || kicked.By != "me" {
			t.Errorf("Detach: %v", err)
		}
		kit.NothingStands(t, srv)
	})
}

func TestDetachOfAnEntryThatWasDeletedIsALoss(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		srv.Delete(h.Key())
		_, err := h.Detach(t.Context(), time.Hour)
		if lost := isLoss(t, err); lost.Cause != holdfast.CauseEntryDeleted {
			t.Errorf("Detach: %v", err)
		}
		kit.NothingStands(t, srv)
	})
}

// isLoss returns the loss that is all that err says, as of Check.
func isLoss(t *testing.T, err error) *holdfast.LostError {
	t.Helper()
	var lost *holdfast.LostError
	if !errors.As(err, &lost) || lost.Error() != err.Error() {
		t.Fatalf("no loss, or not alone: %v", err)
	}
	return lost
}

// The lease of the ticket may end before the Txn arrives: then another one is granted.
func TestDetachWhoseLeaseIsGoneTakesAnother(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		var gone clientv3.LeaseID
		p.KV.Refuse(func([]clientv3.Op) error { // before the Txn is sent
			if gone == 0 {
				gone = longest(t, srv)
				srv.Revoke(gone)
			}
			return nil
		})
		ticket := holdtest.MustDetach(t, h, time.Hour)
		if is := on(srv, h.Key()); gone == 0 || is[0] != ticket.Lease || is[1] != ticket.Lease {
			t.Errorf("%x was revoked; on %x, the ticket has %x", gone, is, ticket.Lease)
		}
	})
}

// The put of the entry was answered, and a copy of it was not. So the sweeper looks after its key, and leaves what is
// detached there, and what is attached.
func TestSweeperSparesADetachedEntry(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, q := holdtest.Start(t, srv), holdtest.Start(t, srv)
		p.PlanOne("enqueue", holdtest.LostReply)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		ticket := holdtest.MustDetach(t, h, time.Hour)
		time.Sleep(time.Minute)
		if p.GateMoves(srv) == 0 {
			t.Error("the sweeper has nothing to do: this tests nothing")
		}
		again := q.MustAttach(t, ticket, hold.Request{})
		time.Sleep(time.Minute)
		if again.Check() != nil {
			t.Error(again.Check())
		}
		holdtest.MustRelease(t, again)
		kit.NothingStands(t, srv)
	})
}

// A goroutine of the same session waits behind the detached entry, as another session would.
func TestNextGoroutineQueuesBehindADetachedEntry(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		next := holdtest.AcquireLater(t.Context(), p.Queue("x"))
		time.Sleep(time.Second)
		ticket := holdtest.MustDetach(t, h, time.Hour)
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		holdtest.StaysQueued(t, next, "the next goroutine")
		again := p.MustAttach(t, ticket, hold.Request{})
		holdtest.StaysQueued(t, next, "the next goroutine")
		holdtest.MustRelease(t, again)
		holdtest.MustRelease(t, holdtest.Granted(t, srv, next).H)
		kit.NothingStands(t, srv)
	})
}

// The limit is of the name: the time with a ticket counts, too. By a clock that is ahead the first hold may have begun
// later than now; then the limit counts from the Attach.
func TestMaxHoldGoesOnFromTheFirstHold(t *testing.T) {
	for ahead, want := range map[time.Duration]time.Duration{0: 20 * time.Second, time.Hour: time.Minute} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			p := holdtest.Start(t, srv)
			h := holdtest.MustAcquire(t, p.Queue("x"))
			time.Sleep(20 * time.Second)
			ticket := holdtest.MustDetach(t, h, time.Hour)
			ticket.Held = ticket.Held.Add(ahead)
			time.Sleep(20 * time.Second)
			began := time.Now()
			again := p.MustAttach(t, ticket, hold.Request{MaxHold: time.Minute})
			<-again.Done()
			lost := isLoss(t, again.Check())
			took := time.Since(began)
			if lost.Cause != holdfast.CauseMaxHold || took < want-time.Second || took > want+time.Second {
				t.Errorf("%v ahead, after %v: %v", ahead, took, lost)
			}
		})
	}
}

// The time before the Attach is none in which its program keeps the name.
func TestMinHoldCountsFromTheReleaseOfWhatWasAttached(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, p *holdtest.Process, h *hold.Hold){
		"released":           func(t *testing.T, _ *holdtest.Process, h *hold.Hold) { holdtest.MustRelease(t, h) },
		"the session closes": func(t *testing.T, p *holdtest.Process, _ *hold.Hold) { holdtest.MustClose(t, p) },
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p, q := holdtest.Start(t, srv), holdtest.Start(t, srv)
				h := holdtest.MustAcquireAs(t, p.Queue("x"), hold.Request{MinHold: time.Minute})
				ticket := holdtest.MustDetach(t, h, time.Hour)
				var records []audit.Record
				keep := audit.Func(func(_ context.Context, r audit.Record) { records = append(records, r) })
				again := p.MustAttach(t, ticket, hold.Request{MinHold: minHold, Auditor: keep})
				time.Sleep(2 * minHold)
				end(t, p, again)
				released := time.Now()
				r := holdtest.Granted(t, srv, holdtest.AcquireLater(t.Context(), q.Queue("x")))
				if took := time.Since(released); took < minHold-time.Second || took > minHold+3*time.Second {
					t.Errorf("the next one holds %v after the end", took)
				}
				holdtest.MustRelease(t, r.H)
			})
		})
	}
}

// Records of two processes are told apart by nothing, and joined by the token.
func TestAuditTellsDetachAndAttach(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		records := make(chan audit.Record, 10)
		r := hold.Request{Auditor: audit.Func(func(_ context.Context, r audit.Record) { records <- r })}
		h := holdtest.MustAcquireAs(t, p.Queue("x"), r)
		time.Sleep(time.Minute)
		ticket := holdtest.MustDetach(t, h, time.Hour)
		time.Sleep(time.Minute)
		again := p.MustAttach(t, ticket, r)
		time.Sleep(time.Minute)
		holdtest.MustRelease(t, again)
		for i, want := range []struct {
			event audit.Event
			held  time.Duration
		}{{audit.Granted, 0}, {audit.Detached, time.Minute}, {audit.Attached, 0}, {audit.Released, 3 * time.Minute}} {
			r := <-records
			if r.Event != want.event || r.Token != h.Token() || r.At.IsZero() || r.Held.Round(time.Second) != want.held {
				t.Errorf("record %d is %+v, want %+v", i, r, want)
			}
		}
	})
}
