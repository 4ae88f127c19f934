package queue

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

func TestGrantIsRemovedNowOnlyIfNoGoroutineWaitsBehindIt(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		q := start(t, srv).queue("x")
		first := mustAcquire(t, q)
		next := newTicket(q, Request{})
		q.shared.lines.Join(&next.Ticket, q.At.Entries, false)
		if first.RemoveNow(t.Context()) || len(srv.Keys(entriesX)) != 1 {
			t.Error("removed, though the entry is to be handed off")
		}
		next.Cancel()
		if !first.RemoveNow(t.Context()) || len(srv.Keys(entriesX)) != 0 {
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
				if err := q.occupancy(); err != nil {
					t.Errorf("the line has a head: %v", err)
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
				err := RemoveTogether(t.Context(), []*Grant{grants["a"], grants["b"]}, grants["c"])
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
			})
		})
	}
}
