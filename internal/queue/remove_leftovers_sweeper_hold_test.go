package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// unansweredPut gives up an attempt whose put was carried out and not answered. Reads are not
// answered until release is called.
func unansweredPut(t *testing.T, p *holdtest.Process, srv *etcdfake.Server) (release func()) {
	t.Helper()
	p.Plan(func(kind string, n int) etcdfake.Fate {
		if kind == "enqueue" || kind == "gate" || kind == "read" {
			return etcdfake.Fate{LoseReply: true, LoseRequest: kind != "enqueue" || n > 1, Silent: true}
		}
		return etcdfake.Fate{}
	})
	before := len(srv.Keys(holdtest.EntriesX))
	_, err := hold.Acquire(kit.Within(t, 50*time.Millisecond), p.Queue("x"), hold.Request{})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if len(srv.Keys(holdtest.EntriesX)) != before+1 {
		t.Fatalf("entries %v: this tests nothing", srv.Keys(holdtest.EntriesX))
	}
	return func() { p.Plan(nil) }
}

// It hides nothing from the waiter behind, who finds the claims of those ahead.
func TestSweeperRemovesAnEntryWhateverIsAhead(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(ahead *kit.Peer)
		delay bool
	}{
		"the entry ahead stands":       {nil, false},
		"the entry ahead was released": {(*kit.Peer).Release, false},
		"the entry ahead was revoked":  {(*kit.Peer).Revoke, true},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p, behind := holdtest.Start(t, srv), holdtest.Start(t, srv)
				ahead := kit.Join(t, srv, holdtest.EntriesX)
				release := unansweredPut(t, p, srv)
				entry := string(srv.Keys(holdtest.EntriesX)[1].Key)
				last := holdtest.AcquireLater(kit.Within(t, time.Hour), behind.Queue("x"))
				kit.Queued(t, srv, holdtest.EntriesX, 3)
				left := time.Now()
				if c.leave != nil {
					c.leave(ahead)
				}
				release()
				time.Sleep(time.Minute)
				if c.leave == nil {
					ahead.Release()
				}
				r := holdtest.Granted(t, srv, last)
				if took := kit.DeletedAt(t, srv, entry).Sub(left); took > kit.Prompt {
					t.Errorf("removed after %v", took)
				}
				if c.leave != nil {
					holdtest.Delayed(t, r, srv, entry, c.delay)
				}
				holdtest.MustRelease(t, r.H)
				kit.NothingStands(t, srv)
			})
		})
	}
}

// The session key was put again during the attempt: no copy of its put can be carried out any
// more, but the entry of an earlier one stands.
func TestEntryOfAnUnansweredPutIsRemovedAfterTheGateHasMoved(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		p.PlanAll("enqueue", etcdfake.Fate{LoseReply: true, Silent: true})
		done := holdtest.AcquireLater(kit.Within(t, 50*time.Millisecond), p.Queue("x"))
		time.Sleep(2 * kit.OneWay)
		if _, err := p.Host.PutSessionKey(t.Context(), p.Host.Lease()); err != nil {
			t.Fatal(err)
		}
		if r := <-done; r.Err == nil || len(srv.Keys(holdtest.EntriesX)) != 1 {
			t.Fatalf("%v, entries %v: this tests nothing", r.Err, srv.Keys(holdtest.EntriesX))
		}
		time.Sleep(kit.Prompt)
		kit.NothingStands(t, srv)
		if n := p.GateMoves(srv); n != 1 {
			t.Errorf("the session key was put again %d times, want once, by the test", n)
		}
	})
}

func TestSweeperDeletesWhileTheStoreIsFull(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		release := unansweredPut(t, p, srv)
		synctest.Wait() // the sweeper has sent its first request, which is lost
		p.KV.Refuse(func(ops []clientv3.Op) error {
			for _, op := range ops {
				if op.IsPut() {
					return rpctypes.ErrNoSpace
				}
			}
			return nil
		})
		release()
		time.Sleep(30 * time.Second)
		kit.NothingStands(t, srv)
		if n := p.GateMoves(srv); n != 0 {
			t.Fatalf("the session key was put again %d times", n)
		}
		p.KV.Refuse(nil)
		time.Sleep(time.Minute)
		if n := p.GateMoves(srv); n != 1 {
			t.Errorf("the session key was put again %d times once there was room, want once", n)
		}
	})
}

// The lease that an unanswered put names is given up while etcd is away: nothing is left to sweep, and nothing to tell.
func TestSweeperForgetsTheEntriesOfALostLease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		p := holdtest.Start(t, srv, holdtest.LogTo(&log))
		p.Link.BlackHole()
		if _, err := hold.Acquire(kit.Within(t, time.Second), p.Queue("x"), hold.Request{}); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Fatal(err)
		}
		time.Sleep(kit.TTL + time.Minute)
		synctest.Wait()
		if n := p.Queue("x").Used(); n != 0 || strings.Contains(log.String(), "refuses to remove") {
			t.Errorf("%d keys are in use; logged:\n%s", n, &log)
		}
		p.Heal()
		time.Sleep(time.Minute)
		holdtest.MustRelease(t, holdtest.MustAcquire(t, p.Queue("x")))
	})
}

// A withdrawn role may be about some names only.
func TestRefusedRemovalDoesNotKeepOtherEntries(t *testing.T) {
	for _, reads := range []bool{false, true} {
		t.Run(fmt.Sprint("reads are refused: ", reads), func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				var log bytes.Buffer
				var tries atomic.Int32
				p := holdtest.Start(t, srv, holdtest.LogTo(&log))
				p.Plan(func(kind string, n int) etcdfake.Fate {
					if kind == "enqueue" {
						return etcdfake.Fate{LoseReply: true, Silent: true}
					}
					return etcdfake.Fate{}
				})
				p.KV.Refuse(func(ops []clientv3.Op) error {
					for _, op := range ops {
						refused := op.IsDelete() || reads && op.IsGet()
						key := string(op.KeyBytes())
						two := strings.HasPrefix(key, "holdfast/lock/n0/") || strings.HasPrefix(key, "holdfast/lock/n1/")
						if refused && two &&
							!slices.ContainsFunc(ops, clientv3.Op.IsPut) {
							tries.Add(1)
							return rpctypes.ErrPermissionDenied
						}
					}
					return nil
				})
				giveUpMany(t, p, 20, 20*time.Millisecond)
				time.Sleep(time.Minute)
				if kvs := kit.AllStanding(srv); len(kvs) != 2 {
					t.Errorf("%d entries stand, want the two whose removal is refused", len(kvs))
				}
				if n := strings.Count(log.String(), "level=ERROR"); n != 1 || !strings.Contains(log.String(), "holdfast/lock/n") {
					t.Errorf("%d errors are logged, want one that names an entry:\n%s", n, &log)
				}
				tries.Store(0)
				time.Sleep(time.Minute)
				if n := tries.Load(); n < 60 || n > 600 {
					t.Errorf("%d requests were refused in a minute", n)
				}
			})
		})
	}
}

// The gate may move, for another attempt, while the reply to a removal is on its way.
func TestCopyThatArrivesBetweenARemovalAndItsReplyIsSwept(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		p.Plan(func(kind string, n int) etcdfake.Fate {
			switch {
			case n > 1:
				return etcdfake.Fate{}
			case kind == "enqueue":
				return etcdfake.Fate{Request: 5 * time.Second}
			case kind == "remove":
				return etcdfake.Fate{Reply: time.Second}
			}
			return etcdfake.Fate{}
		})
		began := time.Now()
		h := holdtest.MustAcquire(t, p.Queue("x"))
		time.Sleep(time.Until(began.Add(4900 * time.Millisecond)))
		released := make(chan error, 1)
		go func() { released <- h.Release(kit.Within(t, time.Minute)) }() // received below
		time.Sleep(200 * time.Millisecond)
		if n := len(srv.Keys(holdtest.EntriesX)); n != 1 {
			t.Fatalf("%d entries stand, want the one that the late copy has put", n)
		}
		if _, err := p.Host.PutSessionKey(t.Context(), p.Host.Lease()); err != nil {
			t.Fatal(err)
		}
		if err := <-released; err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		kit.NothingStands(t, srv)
	})
}

// An administrator deletes the entry. Then the first copy of its acquisition arrives. The claim stands, so it does
// nothing: otherwise the entry would stand again, at a revision that the holder does not know.
func TestLateCopyOfAPutDoesNothingWhileTheClaimStands(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		const late = 5 * time.Second
		p.PlanOne("enqueue", etcdfake.Fate{Request: late})
		began := time.Now()
		h := holdtest.MustAcquire(t, p.Queue("x"))
		time.Sleep(time.Until(began.Add(late - kit.OneWay)))
		if _, err := srv.Client(t).Delete(t.Context(), h.Key()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(began.Add(late + 2*kit.OneWay)))
		if now := srv.Keys(holdtest.EntriesX); len(now) != 0 || len(srv.Keys(kit.ClaimOf(h.Key()))) != 1 {
			t.Fatalf("%d entries stand, claims: %v", len(now), srv.Keys(kit.Claims("x")))
		}
		if err := h.Release(t.Context()); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Release: %v", err)
		}
		time.Sleep(10 * time.Second)
		kit.NothingStands(t, srv)
	})
}
