package queue_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// A full store may have carried out the move all the same. A permission that is missing says that it did not.
func TestSessionKeepsANameThatEtcdRefusesToMove(t *testing.T) {
	for refusal, unknown := range map[error]bool{rpctypes.ErrPermissionDenied: false, rpctypes.ErrNoSpace: true} {
		t.Run(refusal.Error(), func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a, _, h, next := workAndWait(t, srv)
				a.RefuseMoves(refusal)
				began := time.Now()
				err := h.Release(kit.Within(t, time.Minute))
				took := time.Since(began)
				if !errors.Is(err, refusal) || errors.Is(err, holdfast.ErrOutcomeUnknown) != unknown || took > kit.Prompt {
					t.Errorf("Release: %v after %v", err, took)
				}
				r := freeAfter(t, srv, h, next, minHold, minHold+kit.Prompt)
				holdtest.Delayed(t, r, srv, h.Key(), false)
				if a.Queue("x").Used() != 0 {
					t.Error("the session still accounts for the entry")
				}
			})
		})
	}
}

// The first copy of the move is carried out and not answered. etcd refuses what is sent next: another copy of it, or
// after an error the move once more. So the refusal does not say that the session keeps the name.
func TestRefusedMoveOfWhichACopyIsUnansweredIsOfUnknownOutcome(t *testing.T) {
	for name, first := range map[string]etcdfake.Fate{
		"another copy": {LoseReply: true, Silent: true}, "once more": holdtest.LostReply,
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a, _, h, next := workAndWait(t, srv)
				a.Plan(func(kind string, n int) etcdfake.Fate {
					switch {
					case kind == "move" && n == 1:
						return first
					case kind == "move":
						return etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied}
					}
					return etcdfake.Fate{}
				})
				err := h.Release(kit.Within(t, time.Minute))
				if !errors.Is(err, holdfast.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "PermissionDenied") {
					t.Errorf("Release: %v", err)
				}
				a.Plan(nil)
				freeAfter(t, srv, h, next, minHold, keptFor)
				if a.Queue("x").Used() != 0 {
					t.Error("the session still accounts for the entry")
				}
			})
		})
	}
}

// Whatever reply is lost, the name is taken for MinHold, and nothing is left after it.
func TestMinHoldHoldsWhateverReplyIsLost(t *testing.T) {
	proxy := etcdfake.Fate{LoseReply: true, Code: codes.DeadlineExceeded} // etcd's client sends it again
	late := etcdfake.Fate{Request: 7 * time.Second, LoseReply: true, Silent: true}
	for name, fate := range map[string]etcdfake.Fate{
		"lost reply": holdtest.LostReply, "silent": holdtest.Silence, "repeated by etcd's client": proxy,
		"arrives late":        late,
		"silent, carried out": {LoseReply: true, Silent: true},
	} {
		for _, kind := range []string{"LeaseGrant", "move"} {
			t.Run(kind+" "+name, func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					a, _, h, next := workAndWait(t, srv)
					a.PlanOne(kind, fate)
					holdtest.MustRelease(t, h)
					r := freeAfter(t, srv, h, next, minHold, keptFor)
					holdtest.MustRelease(t, r.H)
					time.Sleep(minHold)
					kit.NothingStands(t, srv)
					leases, err := srv.Client(t).Leases(t.Context())
					if err != nil || len(leases.Leases) != 4 {
						t.Errorf("%d leases stand, want the pairs of the two sessions: %v", len(leases.Leases), err)
					}
					if a.Queue("x").Used() != 0 {
						t.Error("the session still accounts for the entry")
					}
				})
			})
		}
	}
}

// No move has a reply until the time is over: the session removes the entry then,
// wherever it stands.
func TestMinHoldEndsInTimeThoughNoMoveIsAnswered(t *testing.T) {
	for name, fate := range map[string]etcdfake.Fate{"carried out": holdtest.LostReply, "lost": {LoseRequest: true}} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a, _, h, next := workAndWait(t, srv)
				a.PlanAll("move", fate)
				err := h.Release(kit.Within(t, 3*time.Second))
				if !errors.Is(err, holdfast.ErrOutcomeUnknown) {
					t.Errorf("Release: %v", err)
				}
				freeAfter(t, srv, h, next, minHold, keptFor)
				if a.Queue("x").Used() != 0 {
					t.Error("the session still accounts for the entry")
				}
			})
		})
	}
}

// The holder could not move the entry in time, so the name is free too early.
func TestMinHoldEndsWithALossOrAnAdministrator(t *testing.T) {
	for name, end := range map[string]func(srv *etcdfake.Server, a *holdtest.Process, h *hold.Hold){
		"the lease is revoked while it is held": func(srv *etcdfake.Server, _ *holdtest.Process,
			h *hold.Hold) {
			srv.Revoke(h.Lease())
		},
		"the holder is cut off": func(_ *etcdfake.Server, a *holdtest.Process,
			_ *hold.Hold) {
			a.Link.BlackHole()
		},
		"the holder is cut off as it releases": func(_ *etcdfake.Server, a *holdtest.Process, h *hold.Hold) {
			a.Link.BlackHole()
			_ = h.Release(kit.Within(t, time.Second))
		},
		"the session gives its lease up by its clock": func(_ *etcdfake.Server, a *holdtest.Process, _ *hold.Hold) {
			a.Suspend(kit.Trust)
			_ = a.Sess.Check()
		},
		"the entry is deleted while it is held": func(srv *etcdfake.Server, _ *holdtest.Process,
			h *hold.Hold) {
			srv.Delete(h.Key())
		},
		"the entry is deleted after its release": func(srv *etcdfake.Server, _ *holdtest.Process, h *hold.Hold) {
			_ = h.Release(context.Background())
			srv.Delete(h.Key())
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				var log bytes.Buffer
				a, _, h, next := workAndWait(t, srv, holdtest.LogTo(&log))
				end(srv, a, h)
				most := worked + kit.Margin + kit.LockDelay + kit.Prompt
				if strings.HasPrefix(name, "the holder is cut off") {
					most += kit.Trust // etcd expires the lease
				}
				freeAfter(t, srv, h, next, worked, most)
				synctest.Wait() // nothing is being logged
				if strings.Contains(log.String(), "refuses to keep") {
					t.Errorf("logged %s", &log)
				}
				a.Heal()
			})
		})
	}
}

// The move finds that another client has deleted the entry.
func TestReleaseBeforeMinHoldFindsThatItsEntryWasDeleted(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, _, h, next := workAndWait(t, srv)
		srv.Delete(h.Key())
		if err := h.Release(kit.Within(t, time.Minute)); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Release: %v", err)
		}
		holdtest.MustRelease(t, holdtest.Granted(t, srv, next).H)
		time.Sleep(time.Second) // the loss is recorded before
		if a.Queue("x").Used() != 0 {
			t.Error("the session still accounts for the entry")
		}
	})
}

// Nothing can be done about it, so the operator is told that the name is free too early.
func TestMoveThatIsRefusedDuringCloseIsLogged(t *testing.T) {
	for name, refuse := range map[string]error{"refused": rpctypes.ErrPermissionDenied, "carried out": nil} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				var log bytes.Buffer
				a, _, _, _ := workAndWait(t, srv, holdtest.LogTo(&log))
				a.RefuseMoves(refuse)
				holdtest.MustClose(t, a)
				if logged := strings.Contains(log.String(), "may be free too early"); logged != (refuse != nil) {
					t.Errorf("logged %s", &log)
				}
			})
		})
	}
}

func TestRevokedSessionDoesNotEndMinHoldAfterTheRelease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
		h := work(t, a.Queue("x"))
		holdtest.MustRelease(t, h)
		next := holdtest.AcquireLater(kit.Within(t, time.Minute), b.Queue("x"))
		srv.Revoke(h.Lease())
		freeAfter(t, srv, h, next, minHold, keptFor+kit.LockDelay)
	})
}

// A lease that the session gave up by its own clock is revoked once etcd answers
// again. By then the work had been done and released: the name stays taken.
func TestNameReleasedDuringAnOutageStaysTakenIfEtcdKeptTheLease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, _, h, next := workAndWait(t, srv)
		a.Plan(func(kind string, _ int) etcdfake.Fate {
			return etcdfake.Fate{LoseRequest: kind == "move" || kind == "LeaseGrant"}
		})
		_ = h.Release(kit.Within(t, time.Second))
		a.Suspend(kit.Trust) // nothing was renewed in time, by this clock
		_ = a.Sess.Check()
		a.Plan(nil)
		r := holdtest.Granted(t, srv, next)
		if taken := r.At.Sub(grantedAt(srv, h)) + kit.Trust; taken < minHold {
			t.Errorf("taken for %v by the clock of the session", taken)
		}
	})
}

// A copy of the enqueue may still arrive. The sweeper disarms it and leaves the entry
// that MinHold keeps.
func TestSweeperLeavesANameThatIsTaken(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
		a.PlanOne("enqueue", etcdfake.Fate{Request: 20 * time.Second, LoseReply: true, Silent: true})
		h := work(t, a.Queue("x"))
		next := holdtest.AcquireLater(kit.Within(t, time.Minute), b.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		holdtest.MustRelease(t, h)
		time.Sleep(kit.Prompt)
		if a.GateMoves(srv) != 1 || !holdtest.IsFirst(srv, h) {
			t.Errorf("the session key was put %d times again; entries: %v", a.GateMoves(srv), srv.Keys(holdtest.EntriesX))
		}
		r := freeAfter(t, srv, h, next, minHold, keptFor)
		holdtest.MustRelease(t, r.H)
		kit.NothingStands(t, srv)
		if a.Queue("x").Used() != 0 {
			t.Error("the session still accounts for the entry")
		}
	})
}

// A move that was not answered is sent again. It must not undo what an administrator has
// done meanwhile: admin.Remove moves the entry to a shorter lease.
func TestMoveDoesNotUndoARemovalByAnAdministrator(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, _, h, next := workAndWait(t, srv)
		a.PlanAll("move", etcdfake.Fate{Request: 2 * time.Second})
		done := make(chan error)
		go func() { done <- h.Release(context.Background()) }()
		time.Sleep(time.Second)
		own, err := srv.Client(t).Grant(t.Context(), 3)
		if err == nil {
			move := clientv3.OpPut(h.Key(), "", clientv3.WithLease(own.ID))
			_, err = srv.Client(t).Txn(t.Context()).Then(move, clientv3.OpDelete(kit.ClaimOf(h.Key()))).Commit()
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Errorf("Release: %v", err)
		}
		freeAfter(t, srv, h, next, worked+4*time.Second, worked+4*time.Second+kit.Prompt)
		if a.Queue("x").Used() != 0 {
			t.Error("the session still accounts for the entry")
		}
	})
}
