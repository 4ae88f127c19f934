package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

func TestGrantIsRemovedNowOnlyIfNoGoroutineWaitsBehindIt(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		q := start(t, srv).queue("x")
		first := mustAcquire(t, q)
		next := newCaller(q, Request{})
		q.shared.lines.join(next)
		if RemoveNow(t.Context(), []*Grant{first}, nil) == nil || len(srv.Keys(entriesX)) != 1 {
			t.Error("removed, though the entry is to be handed off")
		}
		next.cancel()
		if RemoveNow(t.Context(), []*Grant{first}, nil) != nil || len(srv.Keys(entriesX)) != 0 {
			t.Error("not removed")
		}
		mustHandOff(t, mustAcquire(t, q)) // the line has been left
	})
}

// A goroutine that waits behind an entry which has left its line goes its own way, and queues behind that.
func TestGrantThatHasLeftItsLineEndsByWhatHasComeOfItsEntry(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		lost  bool
		ended bool
		kept  int // entries that the session accounts for
	}{
		"on a lease of its own":     {nil, false, true, 0},
		"deleted by another client": {ErrEntryGone, false, true, 0},
		"of a lost lease":           {holdfast.ErrLost, true, true, 0},
		"etcd has not answered":     {rpctypes.ErrTimeout, false, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				q := p.queue("x")
				g := mustAcquire(t, q)
				g.LeaveLine()
				if n := q.shared.lines.length(q.At.Entries); n != 0 {
					t.Errorf("the line has a head, and %d in all", n)
				}
				lease := g.Lease
				if c.lost {
					srv.Revoke(p.Sess.Lease())
					time.Sleep(kit.Prompt)
				}
				if ended := g.Left(c.err); ended != c.ended {
					t.Errorf("Left: %v", ended)
				}
				if kept := q.Kept(lease); len(kept) != c.kept {
					t.Errorf("kept: %v", kept)
				}
				if !c.ended {
					if err := g.Remove(); err != nil || len(srv.Keys(entriesX)) != 0 {
						t.Errorf("removed with %v", err)
					}
				}
			})
		})
	}
}

func TestGrantsAreRemovedTogetherOrNotAtAll(t *testing.T) {
	onlyCopy := etcdfake.Fate{LoseReply: true, Silent: true}
	for name, c := range map[string]struct {
		gone string // deleted by another client
		fate etcdfake.Fate
		err  error
		left string
	}{
		"all stand":                       {"", etcdfake.Fate{}, nil, "c"},
		"one of them is gone":             {"b", etcdfake.Fate{}, ErrEntryGone, "ac"},
		"the first of them is gone":       {"a", etcdfake.Fate{}, ErrEntryGone, "bc"},
		"the one that is to stay is gone": {"c", etcdfake.Fate{}, ErrEntryGone, "ab"},
		"only a copy is answered":         {"", onlyCopy, holdfast.ErrOutcomeUnknown, "c"},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				grants := make(map[string]*Grant)
				for _, lock := range []string{"a", "b", "c"} {
					grants[lock] = mustAcquire(t, p.queue(lock))
				}
				if c.gone != "" {
					srv.Delete(grants[c.gone].Key)
				}
				p.PlanOne("remove", c.fate)
				err := RemoveNow(t.Context(), []*Grant{grants["a"], grants["b"]}, grants["c"])
				if !errors.Is(err, c.err) || c.err == nil && err != nil {
					t.Errorf("%v, want %v", err, c.err)
				}
				left := ""
				for _, lock := range []string{"a", "b", "c"} {
					if len(srv.Keys(kit.Entries(lock))) > 0 {
						left += lock
					}
				}
				if left != c.left {
					t.Errorf("%s stand, want %s", left, c.left)
				}
				if err == nil { // their lines have been left
					mustAcquire(t, p.queue("a"))
					mustAcquire(t, p.queue("b"))
				}
			})
		})
	}
}

// A removal of our own may have done it, so that the entry is gone is no loss.
func TestGrantThatMayHaveBeenRemovedTogetherIsNotFoundLost(t *testing.T) {
	for name, fate := range map[string]etcdfake.Fate{
		"no copy was answered":   {LoseReply: true, Silent: true},
		"its reply was lost":     {LoseReply: true},
		"only a copy is refused": {LoseReply: true, Code: codes.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				grants := []*Grant{mustAcquire(t, p.queue("a")), mustAcquire(t, p.queue("b"))}
				p.PlanAll("remove", fate)
				ctx, cancel := context.WithTimeout(t.Context(), kit.Prompt)
				defer cancel()
				if err := RemoveNow(ctx, grants, nil); err == nil || errors.Is(err, ErrEntryGone) {
					t.Fatalf("RemoveNow: %v", err)
				}
				p.Plan(nil)
				for _, g := range grants {
					mustHandOff(t, g)
				}
				kit.NothingStands(t, srv)
			})
		})
	}
}

// Otherwise the session would keep each key that MinHold has kept taken, for as long as it lives.
func TestGrantThatIsForgottenIsNotAccountedFor(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		g := mustAcquire(t, p.queue("x"))
		g.TakeFor(time.Minute)
		taken := Taken(p.Host, g.Lease)
		if len(taken) != 1 || taken[0].Key != g.Key {
			t.Fatalf("taken: %v", taken)
		}
		taken[0].Forget()
		if n := g.Queue.Used(); n != 0 {
			t.Errorf("%d keys are in use", n)
		}
	})
}

// By these the hold asks whether its entry stands as it was granted, and says how fresh that is.
func TestGrantOfAPermitThatHasWaitedIsOfItsMark(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		first := mustAcquire(t, start(t, srv).permits(1, 1))
		waits := acquireLater(kit.Within(t, time.Minute), start(t, srv).permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		mustHandOff(t, first)
		freed := time.Now()
		g := <-waits
		kv := srv.Keys(kit.Turns("x"))[0]
		if g.Created != kv.CreateRevision || g.Modified != kv.ModRevision || g.AcquiredRevision != kv.ModRevision {
			t.Errorf("created at %d, modified at %d, seen at %d; the entry is %v",
				g.Created, g.Modified, g.AcquiredRevision, kv)
		}
		if old := g.Queue.host.Clock() - g.Stood - time.Since(freed); old > 2*kit.OneWay {
			t.Errorf("it was last seen %v before it was free", old)
		}
		if kv.ModRevision == kv.CreateRevision {
			t.Error("there is no mark: this tests nothing")
		}
		mustHandOff(t, g)
	})
}

// The reply to the put is lost, and the store has gone on before a read places the entry.
func TestGrantOfAnEntryThatWasFoundSaysAtWhichRevisionItWasFree(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		kit.SetLimit(t, srv, 1)
		p := start(t, srv)
		for name, q := range map[string]*Queue{"lock": p.queue("x"), "permit": p.permits(1, 1)} {
			mustHandOff(t, mustAcquire(t, q)) // so that it knows the limit
			time.Sleep(time.Minute)
			p.PlanOne("enqueue", etcdfake.Fate{LoseReply: true})
			done := acquireLater(kit.Within(t, time.Minute), q)
			time.Sleep(kit.OneWay + time.Millisecond)
			for range 10 {
				srv.Put("other", "")
			}
			now := srv.Keys("other")[0].ModRevision
			g := <-done
			if g.Created != now-10 || g.AcquiredRevision != now {
				t.Errorf("%s: created at %d, free at %d; the store is at %d", name, g.Created, g.AcquiredRevision, now)
			}
			mustHandOff(t, g)
		}
	})
}

// Readers and permits are not alone, so what they write cannot be fenced.
func TestWhoIsNotAloneHasNoToken(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		for want, q := range map[bool]*Queue{true: p.queue("x"), false: p.queue("y").Readers()} {
			g := mustAcquire(t, q)
			if (g.Token != 0) != want {
				t.Errorf("%v has token %v", q, g.Token)
			}
			mustHandOff(t, g)
		}
		g := mustAcquire(t, NewSemaphore(p.Host, "z", 2).All())
		if g.Token != 0 {
			t.Errorf("a permit has token %v", g.Token)
		}
		mustHandOff(t, g)
	})
}
