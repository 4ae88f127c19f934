package admin_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func TestEventsTellQueuedAcquiredReleasedLeftAndLost(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		c, _ := newSession(t, srv, "c")
		d, _ := newSession(t, srv, "d")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lk, giveUp := queueUp(t, "x", a, b)
		told := watch(t, adm.Events(ctx, holdfast.KindLock, "x"))
		expect(t, told, "queued a 0, queued b 1, acquired a 1")

		_, more := queueUp(t, "y", c) // another name is not told
		_ = more
		for _, sess := range []*session.Session{c, d} {
			go func() { _, _ = locker.NewMutex(sess, "x").Lock(ctx) }()
			time.Sleep(100 * time.Millisecond)
		}
		expect(t, told, "queued c 2, queued d 3")
		if err := lk.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, told, "released a 2, acquired b 2")
		srv.Revoke(c.Lease())
		expect(t, told, "lost c 1, queued c 2")
		giveUp[0]()                                   // b unlocks
		expect(t, told, "released b 2, acquired d 1") // d deletes the claim of c, which never held
		cancel()
		expect(t, told, "error: context canceled")
	})
}

func TestShowAndEventsTellThatANameStaysTaken(t *testing.T) {
	for _, closed := range []bool{false, true} {
		inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
			a, _ := newSession(t, srv, "a")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			lk, err := locker.NewMutex(a, "x").With(locker.Options{MinHold: time.Minute}).Lock(ctx)
			if err != nil {
				t.Fatal(err)
			}
			told := watch(t, adm.Events(ctx, holdfast.KindLock, "x"))
			expect(t, told, "queued a 0, acquired a 0")
			if err := lk.Unlock(ctx); err != nil {
				t.Fatal(err)
			}
			expect(t, told, "taken a 0")
			if closed {
				_ = a.Close(ctx)
			}
			q, err := adm.Show(ctx, holdfast.KindLock, "x")
			if err != nil {
				t.Fatal(err)
			}
			e, held := q.Holder()
			if !held || e.ReleasedAt.Before(e.HeldAt) || e.TakenUntil.Sub(e.ReleasedAt) != time.Minute ||
				e.TTL <= 0 || e.Lease == lk.Lease() || e.Foreign || !strings.Contains(e.String(), "its name taken until") {
				t.Errorf("%+v", e)
			}
			time.Sleep(time.Minute)
			expect(t, told, "released a 0")
			cancel()
			expect(t, told, "error: context canceled")
		})
	}
}

func TestEventsTellThatAHolderWasKicked(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		ops := newAdministrator(srv, "ops")
		lk := mustLock(t, a, "job")
		var told []audit.Event
		for ev, err := range adm.Events(t.Context(), holdfast.KindLock, "job") {
			if err != nil {
				t.Fatal(err)
			}
			switch told = append(told, ev.What); ev.What {
			case admin.Acquired:
				go func() {
					if err := ops.Kick(t.Context(), holdfast.KindLock, "job", lk.Token(), "deploy"); err != nil {
						t.Error(err)
					}
				}()
			case audit.Kicked:
				if n := ev.Entry.Notice; n.By != "ops" || n.Reason != "deploy" || n.Removed || ev.Entry.Token != lk.Token() {
					t.Errorf("%+v", ev.Entry)
				}
				go func() {
					<-lk.Done()
					_ = lk.Unlock(t.Context())
				}()
			}
			if ev.What == audit.Released {
				break
			}
		}
		if want := []audit.Event{admin.Queued, admin.Acquired, audit.Kicked, audit.Released}; !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}

// An entry that was moved goes with its lease, and its session key stands: that is the end of a removal, and not a
// loss.
func TestEventsTellThatALockWasRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, link := newSession(t, srv, "a")
		ops := newAdministrator(srv, "ops")
		lk := mustLock(t, a, "job")
		link.BlackHole() // dead
		var told []audit.Event
		for ev, err := range adm.Events(t.Context(), holdfast.KindLock, "job") {
			if err != nil {
				t.Fatal(err)
			}
			if told = append(told, ev.What); ev.What == admin.Acquired {
				go func() { mustRemove(t, ops, lk) }()
			}
			if ev.What == audit.Released || ev.What == audit.Lost {
				break
			}
		}
		want := []audit.Event{admin.Queued, admin.Acquired, audit.Removed, audit.Released}
		if !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
		key := lease.Open(a).Lease().Key()
		if len(srv.Keys(key)) != 1 {
			t.Error("the holder's session key is gone")
		}
	})
}

// The session of the holder is gone before the lease of the removal ends. The entry did not go with the session.
func TestEventsTellTheEndOfARemovalAlsoAfterTheSessionOfTheHolder(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, link := newSession(t, srv, "a")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lk := mustLock(t, a, "job")
		told := watch(t, adm.Events(ctx, holdfast.KindLock, "job"))
		expect(t, told, "queued a 0, acquired a 0")
		link.BlackHole()
		mustRemove(t, newAdministrator(srv, "ops"), lk)
		srv.Revoke(lk.Lease())
		expect(t, told, "removed a 0")
		time.Sleep(toldWithin + slack)
		expect(t, told, "released a 0")
		cancel()
		expect(t, told, "error: context canceled")
	})
}
