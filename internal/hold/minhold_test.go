package hold_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

const minHold = 20 * time.Second

// mustTake returns a hold whose name stays taken for minHold.
func mustTake(t *testing.T, p *holdtest.Process, name string) *hold.Hold {
	t.Helper()
	return holdtest.MustAcquireAs(t, p.Queue(name), hold.Request{MinHold: minHold})
}

// Close moves the entries of all names that are to stay taken, of which there may be many, before it revokes the lease.
// One that was deleted by hand is no failure.
func TestManyNamesStayTakenAfterClose(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		p := holdtest.Start(t, srv, holdtest.LogTo(&log))
		const many = 40
		var keys []string
		for i := range many {
			keys = append(keys, mustTake(t, p, fmt.Sprint(i)).Key())
		}
		lease := p.Sess.Lease()
		p.PlanAll("move", etcdfake.Fate{Request: 10 * kit.OneWay})
		srv.Delete(keys[0])
		holdtest.MustClose(t, p)
		for i, key := range keys {
			switch kvs := srv.Keys(key); {
			case i == 0 && len(kvs) != 0:
				t.Error("the entry that was deleted stands")
			case i > 0 && (len(kvs) != 1 || kvs[0].Lease == int64(lease) || kvs[0].Lease == 0):
				t.Errorf("%s: %v", key, kvs)
			}
		}
		if text := log.String(); strings.Contains(text, "free too early") {
			t.Errorf("logged %s", text)
		}
		time.Sleep(minHold + time.Second)
		kit.NothingStands(t, srv)
	})
}

// No move is answered until MinHold has passed. Then the release succeeds: the name is free.
func TestReleaseWhoseMoveIsNotAnsweredSucceedsWhenMinHoldHasPassed(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		p := holdtest.Start(t, srv, holdtest.LogTo(&log))
		h := mustTake(t, p, "x")
		held := time.Now()
		p.PlanAll("move", etcdfake.Fate{LoseRequest: true})
		err := h.Release(kit.Within(t, time.Minute))
		if after := time.Since(held); err != nil || after < minHold || after > minHold+kit.Prompt {
			t.Errorf("Release: %v after %v", err, after)
		}
		kit.NothingStands(t, srv)
		if text := log.String(); strings.Contains(text, "refuses to keep") {
			t.Errorf("logged %s", text)
		}
	})
}

// etcd refuses to move the entry, and the lease that keeps the name taken is lost: nothing is removed any more.
func TestNameThatTheSessionKeepsTakenIsForgottenWithItsLease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := mustTake(t, p, "x")
		p.RefuseMoves(rpctypes.ErrPermissionDenied)
		if err := h.Release(kit.Within(t, time.Minute)); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("Release: %v", err)
		}
		p.Plan(nil)
		p.KV.Refuse(nil) // the session key may be put again
		l := p.Host.Lease()
		srv.Revoke(h.Lease())
		time.Sleep(kit.Prompt)
		if n, taken := p.Counts()["remove"], queue.Taken(p.Host, l); n != 0 || len(taken) != 0 {
			t.Errorf("%d removals; the session accounts for %d entries", n, len(taken))
		}
	})
}

// A move is sent again with the lease that was granted for the first, unless that is gone. Without a lease nothing is
// put: such an entry would stand forever.
func TestLeasesThatKeepNamesTaken(t *testing.T) {
	for name, c := range map[string]struct {
		kind          string
		fate          etcdfake.Fate
		gone          bool // the lease is revoked by hand before the move
		grants, moves int
	}{
		"the reply is lost":    {kind: "move", fate: holdtest.LostReply, grants: 1, moves: 2},
		"the lease is revoked": {gone: true, grants: 2, moves: 1}, // the first is refused before it is counted
		"no lease is granted": {kind: "LeaseGrant", fate: etcdfake.Fate{LoseRequest: true,
			Code: codes.PermissionDenied}, grants: 1, moves: 0},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				h := mustTake(t, p, "x")
				p.PlanOne(c.kind, c.fate)
				refusals := 0
				p.KV.Refuse(func(ops []clientv3.Op) error {
					if c.gone && len(ops) == 3 && ops[0].IsPut() && ops[1].IsDelete() && refusals == 0 {
						refusals++
						return rpctypes.ErrLeaseNotFound
					}
					return nil
				})
				err := h.Release(kit.Within(t, time.Minute))
				if sent := p.Counts(); sent["LeaseGrant"] != c.grants || sent["move"] != c.moves || (err == nil) != (c.moves > 0) {
					t.Errorf("Release: %v; sent %v", err, sent)
				}
				kv := kit.Standing(srv, "x")[0]
				if moved := kv.Lease != int64(h.Lease()); moved != (c.moves > 0) || kv.Lease == 0 {
					t.Errorf("the entry stands on lease %x", kv.Lease)
				}
				time.Sleep(minHold + time.Second)
				kit.NothingStands(t, srv)
			})
		})
	}
}

// After MinHold a release hands its name to the next goroutine of the session in one Txn, as any other does.
func TestReleaseAfterMinHoldHandsOff(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := mustTake(t, p, "x")
		next := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
		time.Sleep(minHold)
		p.Plan(nil)
		holdtest.MustRelease(t, h)
		r := holdtest.Granted(t, srv, next)
		if sent := p.Counts(); sent["hand-off"] != 1 || sent["enqueue"] != 0 {
			t.Errorf("sent %v", sent)
		}
		holdtest.MustRelease(t, r.H)
	})
}

// A session that is closed starts no goroutine. The release ends all the same.
func TestReleaseBeforeMinHoldOnAClosedSession(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := mustTake(t, p, "x")
		h.StopWith(holdfast.ErrReleased)
		closed := make(chan error, 1)
		go func() { closed <- p.Sess.Close(kit.Within(t, time.Minute)) }() // received below
		time.Sleep(kit.Prompt)
		if p.Host.Go(func(context.Context) {}) {
			t.Fatal("the session is not closed")
		}
		h.StayTaken()
		_ = h.Release(kit.Within(t, time.Minute))
		began := time.Now()
		if err := <-closed; err != nil || time.Since(began) > kit.Prompt {
			t.Errorf("Close: %v, %v after the release", err, time.Since(began))
		}
		if kvs := kit.Standing(srv, "x"); len(kvs) != 1 || kvs[0].Lease == int64(h.Lease()) {
			t.Errorf("entries: %v", kvs)
		}
	})
}

// Close moves the entries without waiting for an auditor.
func TestCloseKeepsNamesTakenAlthoughAuditorsAreSlow(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		slow := audit.Func(func(_ context.Context, r audit.Record) {
			if r.Event == audit.Lost {
				time.Sleep(2500 * time.Millisecond)
			}
		})
		names := []string{"x", "y"}
		for _, name := range names {
			holdtest.MustAcquireAs(t, p.Queue(name), hold.Request{MinHold: minHold, Auditor: slow})
		}
		if err := p.Sess.Close(kit.Within(t, time.Minute)); err != nil {
			t.Errorf("Close: %v", err)
		}
		for _, name := range names {
			if kvs := kit.Standing(srv, name); len(kvs) != 1 {
				t.Errorf("%s: the entries %v, want one that keeps the name taken", name, kvs)
			}
		}
	})
}

// The move may have been carried out when the lease expires, so the name may stay taken.
func TestUnansweredMoveOnAnExpiredLeaseIsOfUnknownOutcome(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := mustTake(t, p, "x")
		p.PlanAll("move", etcdfake.Fate{LoseReply: true, Silent: true})
		done := make(chan error, 1)
		go func() { done <- h.Release(kit.Within(t, time.Minute)) }() // received below
		time.Sleep(kit.Prompt)
		p.Host.Lease().Lose(holdfast.CauseExpired, nil)
		if err := <-done; !errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("Release: %v", err)
		}
		p.Plan(nil)
	})
}

// A revocation that is not answered is repeated, with what comes before it. An entry that was moved is not moved again.
func TestNameIsKeptOnceAlthoughTheRevocationIsRepeated(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := mustTake(t, p, "x")
		h.StopWith(holdfast.ErrReleased) // and the session's own move has no reply yet
		p.Host.Lease().Lose(holdfast.CauseExpired, nil)
		p.Plan(nil)
		for range 2 {
			h.BeforeRevoke(t.Context())
		}
		if sent := p.Counts(); sent["move"] != 1 {
			t.Errorf("sent %v", sent)
		}
		h.Remove()
	})
}

// MinHold is for a hold that its program has ended. The entry of a lost one goes with its lease.
func TestNameOfALostHoldDoesNotStayTaken(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := mustTake(t, p, "x")
		p.Plan(nil)
		p.Host.Lease().Lose(holdfast.CauseExpired, nil)
		if h.BeforeRevoke(t.Context()); p.Counts()["move"] != 0 {
			t.Errorf("sent %v", p.Counts())
		}
	})
}
