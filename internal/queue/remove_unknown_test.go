package queue

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// One Txn removes the entries of a set. If it does nothing, what stands of the first one says why: another client has
// deleted an entry, or a copy of the Txn has removed all.
func TestRemovalOfASetSaysWhatBecameOfIt(t *testing.T) {
	lost, noReply := etcdfake.Fate{LoseRequest: true, Silent: true}, etcdfake.Fate{LoseReply: true, Silent: true}
	for name, c := range map[string]struct {
		deleted  string // k and c are the keys of an entry and its claim
		replaced bool   // the client's KV
		fate     etcdfake.Fate
		want     error
	}{
		"the first was deleted":                  {deleted: "kx", want: ErrEntryGone},
		"the second was deleted":                 {deleted: "ky", want: ErrEntryGone},
		"the second, and the claim of the first": {deleted: "ky cx", want: ErrEntryGone},
		"nothing of the first stands":            {deleted: "kx cx", want: ErrEntryGone},
		"the client may have repeated it": {
			deleted: "kx cx", replaced: true, want: holdfast.ErrOutcomeUnknown,
		},
		"the reply was lost":                              {fate: noReply, want: holdfast.ErrOutcomeUnknown},
		"the second was deleted, and a copy has no reply": {deleted: "ky", fate: lost, want: holdfast.ErrOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				if c.replaced {
					p = startReplaced(t, srv)
				}
				grants, err := Set{p.queue("x"), p.queue("y")}.Acquire(kit.Within(t, time.Minute), Request{})
				if err != nil {
					t.Fatal(err)
				}
				x, y := grants[0], grants[1]
				keys := map[string]string{"kx": x.Key, "cx": x.Claim, "ky": y.Key, "cy": y.Claim}
				for _, key := range strings.Fields(c.deleted) {
					srv.Delete(keys[key])
				}
				if c.fate != (etcdfake.Fate{}) {
					p.PlanOne("remove", c.fate)
				}
				if err := RemoveNow(t.Context(), grants, nil); !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
				for _, g := range grants {
					_ = g.HandOff()
				}
				kit.NothingStands(t, srv)
			})
		})
	}
}

// A removal has no reply, or etcd says that it does not know. The next one finds nothing: the first was carried out.
func TestRemovalWithoutAReplyIsNoDeletionByAnother(t *testing.T) {
	for name, fate := range map[string]etcdfake.Fate{
		"no reply": {LoseReply: true, Silent: true}, "an unknown outcome": {LoseReply: true, Code: codes.Unavailable},
	} {
		for removedBy, remove := range map[string]func(g *Grant) error{
			"a hand-off": (*Grant).HandOff,
			"both removals": func(g *Grant) error {
				if err := RemoveNow(g.Lease.Context(), []*Grant{g}, nil); err == nil {
					return errors.New("the removal has its reply: this tests nothing")
				}
				return g.HandOff()
			},
		} {
			t.Run(name+", "+removedBy, func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					p := start(t, srv)
					g := mustAcquire(t, p.queue("x"))
					p.PlanOne("remove", fate)
					if err := remove(g); err != nil {
						t.Error(err)
					}
					kit.NothingStands(t, srv)
				})
			})
		}
	}
}

// etcd refuses the removal, and has carried it out all the same: alone, or in a batch before.
func TestRemovalThatIsRefusedMayHaveBeenCarriedOut(t *testing.T) {
	for _, refusal := range []error{rpctypes.ErrTimeout, rpctypes.ErrNoSpace} {
		for name, remove := range map[string]func(g *Grant) error{
			"a hand-off": (*Grant).HandOff,
			"both removals": func(g *Grant) error {
				if err := RemoveNow(g.Lease.Context(), []*Grant{g}, nil); !errors.Is(err, refusal) {
					return fmt.Errorf("%w: this tests nothing", err)
				}
				return g.HandOff()
			},
		} {
			t.Run(fmt.Sprint(refusal, ", ", name), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					p := start(t, srv)
					g := mustAcquire(t, p.queue("x"))
					p.KV.Refuse(func(ops []clientv3.Op) error {
						if len(srv.Keys(g.Key)) == 0 || !slices.ContainsFunc(ops, clientv3.Op.IsDelete) {
							return nil
						}
						srv.Delete(g.Key)
						srv.Delete(g.Claim)
						return refusal
					})
					err := remove(g)
					if errors.Is(err, refusal) && errors.Is(err, holdfast.ErrOutcomeUnknown) {
						err = nil // a full store is no reason to try again
					}
					if err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// The entry is deleted by hand while its removal has no reply. The claim that stands says that it was not this session.
func TestRemovalThatFindsItsClaimWasNotCarriedOut(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		q := p.queue("x")
		g := mustAcquire(t, q)
		p.PlanOne("remove", etcdfake.Fate{LoseRequest: true, Silent: true})
		srv.Delete(g.Key)
		if err := g.HandOff(); !errors.Is(err, ErrEntryGone) || errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("HandOff: %v", err)
		}
		kit.NothingStands(t, srv)
		next := mustAcquire(t, q) // another client may have put something else at the key
		if next.Key == g.Key {
			t.Error("the key was used again")
		}
		mustHandOff(t, next)
	})
}

// What has gone needs no sweeper.
func TestRemovalThatMayHaveBeenRepeatedLeavesNothingToSweep(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		q := startReplaced(t, srv).queue("x")
		g := mustAcquire(t, q)
		srv.Delete(g.Key)
		srv.Delete(g.Claim)
		if err := g.HandOff(); !errors.Is(err, ErrRepeated) {
			t.Errorf("HandOff: %v", err)
		}
		time.Sleep(kit.Prompt) // the sweeper is done
		if n := q.Used(); n != 0 || g.refused {
			t.Errorf("%d keys are in use; refused: %v", n, g.refused)
		}
	})
}

// The lease is lost while the removal has no reply. Etcd has refused nothing.
func TestRemovalThatALossEndsIsNotRefused(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		g := mustAcquire(t, p.queue("x"))
		p.PlanAll("remove", etcdfake.Fate{LoseRequest: true, Silent: true})
		time.AfterFunc(time.Second, func() { g.Lease.Lose(holdfast.CauseExpired, nil) })
		if err := g.HandOff(); !errors.Is(err, holdfast.ErrOutcomeUnknown) || g.refused {
			t.Errorf("HandOff: %v; refused: %v", err, g.refused)
		}
		p.Plan(nil)
	})
}

// etcd does not take the hand-off at first. It is sent again, so the next caller keeps its turn behind the holder.
func TestHandOffThatFailsIsSentAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		g, next := grantWithNext(kit.Within(t, time.Minute), t, p)
		p.PlanOne("hand-off", etcdfake.Fate{LoseRequest: true, Code: codes.Unavailable})
		mustHandOff(t, g)
		if n := p.Counts(); n["hand-off"] < 2 || n["remove"] != 0 || n["enqueue"] != 0 {
			t.Errorf("sent %v", n)
		}
		mustHandOff(t, <-next)
	})
}

// The reply to the hand-off is lost, and the entry was put. Its caller does not put it again.
func TestHandOffThatIsFoundDoneNeedsNoOtherPut(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		g, next := grantWithNext(kit.Within(t, time.Minute), t, p)
		p.PlanOne("hand-off", etcdfake.Fate{LoseReply: true, Silent: true})
		mustHandOff(t, g)
		handed := <-next
		if n := p.Counts(); n["enqueue"] != 0 || n["remove"] != 0 || n["hand-off"] != 2 {
			t.Errorf("sent %v", n)
		}
		mustHandOff(t, handed)
	})
}

// The sweeper looks wherever the entry may stand: a permit may have become a turn.
func TestSweeperIsToldWhereTheEntryMayStand(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		foreign := layout.At("holdfast", holdfast.KindLock, "theirs")
		unclaimed := layout.At("holdfast", holdfast.KindLock, "not-ours")
		const id = "1f-AAAAAAAAAAAAAAAA"
		permit := semaphoreX.PermitKey(1, id)
		turn := semaphoreX.TurnKey(permit)
		for name, c := range map[string]struct {
			at   layout.Keyspace
			key  string
			want []string
		}{
			"a lock": {lockX, lockX.Entries + id, []string{lockX.Entries + id, lockX.Claims + id}},
			"a foreign lock": {
				foreign, foreign.Entries + id, []string{foreign.Entries + id, foreign.ClaimKey(foreign.Entries + id)},
			},
			"a permit": {
				semaphoreX, permit,
				[]string{permit, semaphoreX.ClaimKey(permit), turn, semaphoreX.ClaimKey(turn)},
			},
			"without the right to claims": {unclaimed, unclaimed.Entries + id, []string{unclaimed.Entries + id}},
		} {
			q := &Queue{host: p.Host, scope: scope{At: c.at, Unclaimed: name == "without the right to claims"}}
			s := (&entry{Queue: q, of: new(attempt), Lease: p.Host.Lease(), entryKeys: entryKeys{home: c.key}}).suspect()
			if s.Key != c.key || !slices.Equal(s.Keys, c.want) {
				t.Errorf("%s: %v, want %v", name, s.Keys, c.want)
			}
		}
	})
}

// A session whose own KV repeats nothing knows what it has removed.
func TestRemovalOfASessionThatRepeatsNothingKnowsOfADeletion(t *testing.T) {
	for name, remove := range map[string]func(g *Grant, beside *Grant) error{
		"a hand-off":   func(g, _ *Grant) error { return g.HandOff() },
		"with another": func(g, beside *Grant) error { return RemoveNow(g.Lease.Context(), []*Grant{g}, beside) },
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := &process{kit.StartQuiet(t, srv)}
				g, beside := mustAcquire(t, p.queue("x")), mustAcquire(t, p.queue("y"))
				srv.Delete(g.Key)
				srv.Delete(g.Claim)
				if err := remove(g, beside); !errors.Is(err, ErrEntryGone) {
					t.Errorf("%v, want %v", err, ErrEntryGone)
				}
				_ = g.HandOff()
				mustHandOff(t, beside)
			})
		})
	}
}

// The hand-off has no reply, and the entry was deleted by hand. Which came first is not known, so it is no loss.
func TestHandOffThatMayHaveBeenCarriedOutIsNoLossThoughTheClaimStands(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		g, next := grantWithNext(kit.Within(t, time.Minute), t, p)
		p.PlanOne("hand-off", etcdfake.Fate{LoseRequest: true, Silent: true})
		srv.Delete(g.Key)
		mustHandOff(t, g)
		p.Plan(nil)
		mustHandOff(t, <-next)
		kit.NothingStands(t, srv)
	})
}
