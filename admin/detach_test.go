package admin_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/locker"
)

func mustDetach(t *testing.T, lk *locker.Lock) locker.Ticket {
	t.Helper()
	ticket, err := lk.Detach(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

// None holds, so none is asked and none is told: both keys go at once, and the next one holds.
func TestKickOrRemovalOfADetachedHoldFreesTheNameAtOnce(t *testing.T) {
	for _, remove := range []bool{false, true} {
		t.Run(fmt.Sprint("remove=", remove), func(t *testing.T) {
			whileHeld(t, func(t *testing.T, j *job) {
				ticket := mustDetach(t, j.lk)
				granted := j.waiter(t, true)
				begin, end := time.Now(), j.ops.Kick
				if remove {
					end = j.ops.Remove
				}
				if err := end(t.Context(), holdfast.KindLock, "job", j.lk.Token(), "deploy"); err != nil {
					t.Fatal(err)
				}
				after(t, <-granted, begin, 0)
				if n := len(j.ops.records); n != 1 || j.ops.records[0].Token != j.lk.Token() || j.ops.records[0].Err != nil {
					t.Errorf("records: %+v", j.ops.records)
				}
				var ended *holdfast.TicketError
				if _, err := locker.Attach(t.Context(), j.a, ticket, locker.Options{}); !errors.As(err, &ended) ||
					ended.End != holdfast.TicketKicked {
					t.Errorf("Attach: %v", err)
				}
			})
		})
	}
}

// It is attached between the read of the administrator and the revocation. That does nothing then, and the new holder
// is asked.
func TestKickOfADetachedHoldThatIsAttachedMeanwhileAsksTheNewHolder(t *testing.T) {
	whileHeld(t, func(t *testing.T, j *job) {
		b, _ := newSession(t, j.srv, "b")
		ticket := mustDetach(t, j.lk)
		attached := make(chan *locker.Lock, 1)
		j.ops.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			if c.Method == "LeaseRevoke" && len(attached) == 0 {
				go func() { // ends with the reply; the test receives from attached
					lk, err := locker.Attach(t.Context(), b, ticket, locker.Options{})
					if err != nil {
						t.Error(err)
					}
					attached <- lk
				}()
				return etcdfake.Fate{Request: time.Second}
			}
			return etcdfake.Fate{}
		})
		j.mustKick(t)
		ends(t, <-attached, holdfast.CauseKicked)
	})
}

// The bell rings for the session that has attached.
func TestKickOfWhatWasAttachedIsToldAtOnce(t *testing.T) {
	whileHeld(t, func(t *testing.T, j *job) {
		b, _ := newSession(t, j.srv, "b")
		lk, err := locker.Attach(t.Context(), b, mustDetach(t, j.lk), locker.Options{})
		if err != nil {
			t.Fatal(err)
		}
		granted := waitFor(t, j.a, lk, true)
		j.mustKick(t)
		if took := ends(t, lk, holdfast.CauseKicked); took > slack {
			t.Errorf("told after %v", took)
		}
		begin := time.Now()
		_ = lk.Unlock(t.Context())
		after(t, <-granted, begin, 0)
	})
}

// A revocation whose reply is lost, or that comes late, is repeated.
func TestKickOfADetachedHoldWithLostMessages(t *testing.T) {
	for name, fate := range map[string]etcdfake.Fate{
		"the request is lost": {LoseRequest: true}, "the reply is lost": {LoseReply: true},
	} {
		t.Run(name, func(t *testing.T) {
			whileHeld(t, func(t *testing.T, j *job) {
				mustDetach(t, j.lk)
				lost := false
				j.ops.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
					if c.Method == "LeaseRevoke" && !lost {
						lost = true
						return fate
					}
					return etcdfake.Fate{}
				})
				j.mustKick(t)
				if kvs := j.srv.Keys(jobEntries); !lost || len(kvs) != 0 {
					t.Errorf("lost %v; in etcd %v", lost, kvs)
				}
			})
		})
	}
}

func TestShowAndEventsTellThatANameIsDetached(t *testing.T) {
	for _, attaches := range []bool{false, true} {
		t.Run(fmt.Sprint("attaches=", attaches), func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
				a, _ := newSession(t, srv, "a")
				b, _ := newSession(t, srv, "b")
				lk := mustLock(t, a, "x")
				told := watch(t, adm.Events(t.Context(), holdfast.KindLock, "x"))
				expect(t, told, "queued a 0, acquired a 0")
				ticket := mustDetach(t, lk)
				expect(t, told, "detached a 0")
				q, err := adm.Show(t.Context(), holdfast.KindLock, "x")
				if err != nil {
					t.Fatal(err)
				}
				e, held := q.Holder()
				if !held || !e.Detached() || e.DetachedUntil.Sub(e.DetachedAt).Round(time.Minute) != time.Hour ||
					e.Token != lk.Token() || e.Unclaimed || !strings.Contains(e.String(), "detached at ") {
					t.Errorf("%+v", e)
				}
				if !attaches {
					time.Sleep(time.Hour + time.Minute)
					expect(t, told, "released a 0")
					return
				}
				lk, err = locker.Attach(t.Context(), b, ticket, locker.Options{})
				if err != nil {
					t.Fatal(err)
				}
				expect(t, told, "attached b 0")
				srv.Revoke(b.Lease())
				expect(t, told, "lost b 0")
				if q, _ = adm.Show(t.Context(), holdfast.KindLock, "x"); len(q.Dead) != 1 || q.Dead[0].Lease != lk.Lease() {
					t.Errorf("dead claims %+v, want one of lease %x", q.Dead, lk.Lease())
				}
			})
		})
	}
}

// An entry whose claim etcd has lost may go with its lease, and that is a loss, or with both leases of a session that
// was closed. The session key tells, of the session that holds.
func TestEventsTellTheEndOfWhatWasAttachedByItsSession(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		lk, err := locker.Attach(t.Context(), b, mustDetach(t, mustLock(t, a, "x")), locker.Options{})
		if err != nil {
			t.Fatal(err)
		}
		srv.Delete(layout.Named("holdfast", holdfast.KindLock, "x").ClaimKey(lk.Key()))
		told := watch(t, adm.Events(t.Context(), holdfast.KindLock, "x"))
		expect(t, told, "queued b 0, acquired b 0")
		srv.Revoke(b.Lease())
		expect(t, told, "lost b 0")
	})
}
