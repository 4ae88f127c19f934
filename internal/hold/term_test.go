package hold_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

const entriesOfTerm = "holdfast/election/x/@/"

// mustLead returns a hold of election x.
func mustLead(t *testing.T, p *holdtest.Process) *hold.Hold {
	t.Helper()
	election := queue.New(p.Host, holdfast.KindElection, "x")
	return holdtest.MustAcquireAs(t, election, hold.Request{Request: queue.Request{Data: "old"}})
}

// dataIn returns what the entry of the term says.
func dataIn(t *testing.T, srv *etcdfake.Server) string {
	t.Helper()
	v, ok := layout.DecodeValue(srv.Keys(entriesOfTerm)[0].Value)
	if !ok {
		t.Fatal("the entry's value has another form")
	}
	return v.Data
}

// Whatever becomes of its first request, an update is carried out once.
func TestUpdateIsSentAgainUntilItIsAnsweredAndCarriedOutOnce(t *testing.T) {
	for name, fate := range map[string]etcdfake.Fate{
		"answered": {}, "reply lost": holdtest.LostReply, "request lost": {LoseRequest: true}, "silent": holdtest.Silence,
		"silent, carried out": {LoseReply: true, Silent: true}, "late": {Request: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				h := mustLead(t, p)
				p.Updates(func(n int) (f etcdfake.Fate) {
					if n == 1 {
						f = fate
					}
					return f
				})
				if err := h.Update(kit.Within(t, time.Minute), "new"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				kv := srv.Keys(entriesOfTerm)[0]
				if dataIn(t, srv) != "new" || kv.Version != 2 || h.Check() != nil {
					t.Errorf("%q, %d writes", dataIn(t, srv), kv.Version)
				}
				holdtest.MustRelease(t, h)
			})
		})
	}
}

// etcd refuses the second copy, or what is sent after an error. Whether the first one was carried out is known only if
// it was answered.
func TestRefusedUpdateIsOfUnknownOutcomeIfACopyIsUnanswered(t *testing.T) {
	refused := etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied}
	for name, first := range map[string]etcdfake.Fate{
		"unanswered": {LoseReply: true, Silent: true}, "its reply is lost": holdtest.LostReply, "refused": refused,
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				h, unanswered := mustLead(t, p), first != refused
				p.Updates(func(n int) etcdfake.Fate {
					if n == 1 {
						return first
					}
					return refused
				})
				err := h.Update(kit.Within(t, time.Minute), "new")
				if err == nil || !strings.Contains(err.Error(), "PermissionDenied") ||
					errors.Is(err, holdfast.ErrOutcomeUnknown) != unanswered || (dataIn(t, srv) == "new") != unanswered {
					t.Errorf("Update: %v; the entry says %q", err, dataIn(t, srv))
				}
				p.Plan(nil)
				holdtest.MustRelease(t, h)
			})
		})
	}
}

// An update finds that the entry is gone before the poll does.
func TestUpdateOfAnEntryThatIsGoneEndsTheHold(t *testing.T) {
	for name, c := range map[string]struct {
		end     func(srv *etcdfake.Server, h *hold.Hold)
		cause   holdfast.Cause
		refused error
	}{
		"deleted": {func(srv *etcdfake.Server, h *hold.Hold) { srv.Delete(h.Key()) }, holdfast.CauseEntryDeleted, nil},
		"deleted, and another one put": {func(srv *etcdfake.Server, h *hold.Hold) {
			srv.Delete(h.Key())
			srv.Put(h.Key(), "")
		}, holdfast.CauseEntryDeleted, nil},
		"revoked": {func(srv *etcdfake.Server, h *hold.Hold) { srv.Revoke(h.Lease()) }, holdfast.CauseRevoked, nil},
		"refused for want of the lease": {
			func(*etcdfake.Server, *hold.Hold) {}, holdfast.CauseRevoked, rpctypes.ErrLeaseNotFound,
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				h := mustLead(t, p)
				p.PlanAll("event", etcdfake.Fate{Reply: time.Minute})
				c.end(srv, h)
				if c.refused != nil {
					p.KV.Refuse(func(ops []clientv3.Op) error { return c.refused })
				}
				began := time.Now()
				err := h.Update(kit.Within(t, time.Minute), "new")
				p.KV.Refuse(nil)
				var lost *holdfast.LostError
				if !errors.As(err, &lost) || lost.Cause != c.cause || time.Since(began) > 2*kit.OneWay {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
				p.Plan(nil)
				srv.Delete(h.Key())
			})
		})
	}
}

// Both are carried out, one after the other.
func TestTwoUpdatesAtOnceAreBothCarriedOut(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		h := mustLead(t, holdtest.Start(t, srv))
		values := []string{"one", "other"}
		updated := make(chan error, len(values))
		for _, value := range values {
			go func() { updated <- h.Update(kit.Within(t, time.Minute), value) }() // received below
		}
		if err := errors.Join(<-updated, <-updated); err != nil {
			t.Error(err)
		}
		if kv := srv.Keys(entriesOfTerm)[0]; kv.Version != 3 {
			t.Errorf("%d writes", kv.Version)
		}
		holdtest.MustRelease(t, h)
	})
}

// Abandon waits for the removal for a moment only; the session goes on with it.
func TestAbandonEndsTheHoldAndWaitsAMomentForTheRemoval(t *testing.T) {
	for name, hangs := range map[string]bool{"etcd answers": false, "etcd hangs": true} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				h := mustLead(t, p)
				if hangs {
					p.Link.BlackHole()
				}
				began := time.Now()
				err := h.Abandon(holdfast.CauseMaxHold)
				took := time.Since(began)
				var lost *holdfast.LostError
				if !errors.As(err, &lost) || lost.Cause != holdfast.CauseMaxHold || h.Check() != err {
					t.Errorf("Abandon: %v, Check: %v", err, h.Check())
				}
				if hangs && took != hold.AbandonWait || !hangs && (took > 2*kit.OneWay || len(srv.Keys(entriesOfTerm)) != 0) {
					t.Errorf("after %v stand %v", took, srv.Keys(entriesOfTerm))
				}
				p.Heal()
				time.Sleep(5 * time.Second)
				kit.NothingStands(t, srv)
			})
		})
	}
}

// An update compares the value that the one before it has put, so it costs one request.
func TestUpdateKnowsWhatTheOneBeforeItHasPut(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := mustLead(t, p)
		p.Plan(nil)
		for _, value := range []string{"one", "other"} {
			if err := h.Update(t.Context(), value); err != nil {
				t.Error(err)
			}
		}
		if n := p.Counts()["mark"]; n != 2 || dataIn(t, srv) != "other" {
			t.Errorf("%d requests, and the entry says %q", n, dataIn(t, srv))
		}
		holdtest.MustRelease(t, h)
	})
}
