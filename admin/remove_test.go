package admin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// toldWithin is the life of the lease that an entry is moved to: LockDelay and 2 s.
const toldWithin = 3 * time.Second

// slack is more than a few round trips and etcd's pause between two looks for expired leases, less than any delay.
const slack = 700 * time.Millisecond

// next is the grant that a waiter gets.
type next struct {
	lk *locker.Lock
	at time.Time
}

// waitFor has a session wait for the lock. When it holds, former must have been told, unless that could not be.
func waitFor(t *testing.T, sess *session.Session, former *locker.Lock, told bool) <-chan next {
	t.Helper()
	granted := make(chan next, 1)
	go func() {
		lk, err := locker.NewMutex(sess, "job").Lock(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		if told && former.Check() == nil {
			t.Error("the next holder holds before the former one was told")
		}
		granted <- next{lk, time.Now()}
	}()
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	return granted
}

// after checks how long after some moment a waiter was granted the lock.
func after(t *testing.T, n next, begin time.Time, least time.Duration) {
	t.Helper()
	if took := n.at.Sub(begin); took < least || took > least+slack {
		t.Errorf("the next holder follows after %v, want %v", took, least)
	}
	if err := n.lk.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func mustRemove(t *testing.T, ops *administrator, lk *locker.Lock) time.Time {
	t.Helper()
	begin := time.Now()
	if err := ops.Remove(t.Context(), "job", lk.Token(), "wedged"); err != nil {
		t.Fatal(err)
	}
	return begin
}

// A holder whose work hangs is told, its entry stands until its lease ends, and then the waiter holds.
func TestRemovedHolderIsToldBeforeTheNextOneHolds(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		ops := newAdministrator(srv, "ops")
		lk := mustLock(t, a, "job")
		granted := waitFor(t, b, lk, true)
		begin := mustRemove(t, ops, lk)
		if took := ends(t, lk, holdfast.CauseRemoved); took > 2*time.Second {
			t.Errorf("told after %v", took)
		}
		q, err := ops.Show(t.Context(), admin.Lock, "job")
		h, _ := q.Holder()
		if n := h.Notice; err != nil || h.Token != lk.Token() || !n.Removed || n.By != "ops" || n.Reason != "wedged" ||
			n.Until.Sub(begin) < toldWithin || n.Until.Sub(begin) > toldWithin+slack || h.TTL > toldWithin {
			t.Errorf("meanwhile: %+v, %v", h, err)
		}
		after(t, <-granted, begin, toldWithin)
		var lost *holdfast.LostError
		if err := lk.Unlock(t.Context()); !errors.As(err, &lost) || lost.Cause != holdfast.CauseRemoved {
			t.Errorf("Unlock: %v", err)
		}
		if len(ops.records) != 1 {
			t.Fatalf("records %+v", ops.records)
		}
		if r := ops.records[0]; r.Event != audit.Removed || r.By != "ops" || r.Detail != "wedged" || r.Err != nil {
			t.Errorf("record %+v", r)
		}
	})
}

// The holder is alive after all: its release frees the name at once.
func TestRemovedHolderThatReleasesFreesTheNameAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		ops := newAdministrator(srv, "ops")
		lk := mustLock(t, a, "job")
		granted := waitFor(t, b, lk, true)
		mustRemove(t, ops, lk)
		ends(t, lk, holdfast.CauseRemoved)
		released := time.Now()
		_ = lk.Unlock(t.Context())
		after(t, <-granted, released, 0)
	})
}

// A release with MinHold that comes at the same time as the removal frees the name as late as either of them, and no
// next holder before the release.
func TestRemovalAndReleaseWithMinHoldAtOnce(t *testing.T) {
	for delay := range 8 {
		inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
			a, _ := newSession(t, srv, "a")
			b, _ := newSession(t, srv, "b")
			ops := newAdministrator(srv, "ops")
			lk, err := locker.NewMutex(a, "job").With(locker.Options{MinHold: time.Minute}).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			granted := waitFor(t, b, lk, true)
			begin, removed := time.Now(), make(chan error, 1)
			go func() { removed <- ops.Remove(t.Context(), "job", lk.Token(), "wedged") }()
			time.Sleep(time.Duration(delay) * time.Millisecond)
			if err := lk.Unlock(t.Context()); err != nil {
				t.Errorf("%d: Unlock: %v", delay, err)
			}
			if err := <-removed; err != nil && !errors.Is(err, admin.ErrNotHeld) {
				t.Errorf("%d: Remove: %v", delay, err)
			}
			n := <-granted
			if took := n.at.Sub(begin); took < toldWithin || took > time.Minute+slack {
				t.Errorf("%d: the next holder follows after %v", delay, took)
			}
			_ = n.lk.Unlock(t.Context())
		})
	}
}

// A dead holder's lease would last for its TTL. The waiter holds as soon as the lease of the removal has ended, because
// the session key of the holder stands; if that goes meanwhile, the lock delay follows.
func TestRemovedLockOfADeadHolderIsFreeSoon(t *testing.T) {
	for what, c := range map[string]struct {
		dead time.Duration // before the removal
		want time.Duration
	}{
		"while its lease lives": {2 * time.Second, toldWithin},
		"as its lease ends":     {session.DefaultTTL - 2*time.Second, toldWithin + time.Second},
	} {
		inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
			a, link := newSession(t, srv, "a")
			b, _ := newSession(t, srv, "b")
			ops := newAdministrator(srv, "ops")
			lk := mustLock(t, a, "job")
			granted := waitFor(t, b, lk, false)
			link.BlackHole()
			time.Sleep(c.dead)
			begin := mustRemove(t, ops, lk)
			if after(t, <-granted, begin, c.want); t.Failed() {
				t.Error(what)
			}
		})
	}
}

// A holder that is cut off cannot be told in time; nothing but its fence closes that gap. It is told when it reaches
// etcd again, and its late release does the next holder no harm.
func TestRemovedHolderThatWasCutOffIsToldWhenItReachesEtcd(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, link := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		ops := newAdministrator(srv, "ops")
		lk := mustLock(t, a, "job")
		granted := waitFor(t, b, lk, false)
		link.BlackHole()
		mustRemove(t, ops, lk)
		n := <-granted
		if n.lk.Token() <= lk.Token() {
			t.Errorf("token %v after %v", n.lk.Token(), lk.Token())
		}
		link.Heal()
		ends(t, lk, holdfast.CauseEntryDeleted)
		_ = lk.Unlock(t.Context())
		time.Sleep(time.Second)
		if err := n.lk.Check(); err != nil {
			t.Error(err)
		}
		after(t, n, n.at, 0)
	})
}

// The remover ends at any point. The holder was asked or not, and nothing else has happened; another removal
// completes it.
func TestRemoverThatEndsHalfwayHarmsNothing(t *testing.T) {
	for step, reaches := range []string{"nothing", "the request", "the lease", "the move"} {
		inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
			a, _ := newSession(t, srv, "a")
			b, _ := newSession(t, srv, "b")
			crashes, ops := newAdministrator(srv, "crashes"), newAdministrator(srv, "ops")
			lk := mustLock(t, a, "job")
			granted := waitFor(t, b, lk, true)
			writes := 0
			crashes.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
				f := etcdfake.Fate{Request: time.Millisecond, Reply: time.Millisecond}
				r, ok := c.Request.(*pb.TxnRequest)
				if c.Method == "LeaseGrant" || ok && len(r.Compare) > 0 {
					writes++
					f.LoseRequest, f.Silent = writes > step, true
				}
				return f
			})
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			begin := time.Now()
			if err := crashes.Remove(ctx, "job", lk.Token(), "wedged"); (err == nil) != (reaches == "the move") {
				t.Errorf("%s: %v", reaches, err)
			}
			cancel()
			if reaches == "nothing" {
				time.Sleep(time.Minute)
				if err := lk.Check(); err != nil {
					t.Errorf("%s: %v", reaches, err)
				}
				begin = mustRemove(t, ops, lk)
			}
			ends(t, lk, holdfast.CauseRemoved)
			told := time.Now()
			n := <-granted
			if took := n.at.Sub(begin); took < toldWithin-slack || n.at.Sub(told) > toldWithin+slack {
				t.Errorf("%s: the next holder follows after %v, %v after the holder was told", reaches, took, n.at.Sub(told))
			}
			after(t, n, n.at, 0)
			_ = lk.Unlock(t.Context())
		})
	}
}

// A reply is lost at each write in turn, or is late, or the request is.
func TestRemovalWithLostAndLateMessages(t *testing.T) {
	fates := map[string]etcdfake.Fate{
		"reply lost": {LoseReply: true}, "reply lost in silence": {LoseReply: true, Silent: true},
		"request lost": {LoseRequest: true}, "request lost in silence": {LoseRequest: true, Silent: true},
		"late": {Request: 2800 * time.Millisecond}, "too late": {Request: 3900 * time.Millisecond},
		"far too late": {Request: time.Minute}, "late reply": {Reply: 3 * time.Second},
	}
	for what, fate := range fates {
		for write := 1; write <= 3; write++ {
			for _, all := range []bool{false, true} { // of the copies that are sent beside a slow request
				inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
					a, _ := newSession(t, srv, "a")
					b, _ := newSession(t, srv, "b")
					ops := newAdministrator(srv, "ops")
					lk := mustLock(t, a, "job")
					granted := waitFor(t, b, lk, true)
					kind := func(c etcdfake.Call) int {
						r, ok := c.Request.(*pb.TxnRequest)
						switch {
						case c.Method == "LeaseGrant":
							return 2
						case !ok || len(r.Compare) == 0:
							return 0
						case r.Success[0].GetRequestPut().GetIgnoreLease():
							return 1
						default:
							return 3
						}
					}
					began, hit := time.Now(), false
					ops.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
						f := etcdfake.Fate{Request: time.Millisecond, Reply: time.Millisecond}
						if kind(c) == write && (!hit || all && time.Since(began) < 8*time.Second) {
							hit = true
							f.Request, f.Reply = f.Request+fate.Request, f.Reply+fate.Reply
							f.LoseReply, f.LoseRequest, f.Silent = fate.LoseReply, fate.LoseRequest, fate.Silent
						}
						return f
					})
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					where := fmt.Sprintf("%s, write %d, all copies: %v", what, write, all)
					err := ops.Remove(ctx, "job", lk.Token(), "wedged")
					// The holder was told, and gone, before the first request was answered.
					gone := errors.Is(err, admin.ErrNotHeld) && errors.Is(err, holdfast.ErrOutcomeUnknown) && write == 1 && all
					if err != nil && !gone || !hit {
						t.Errorf("%s: %v", where, err)
					}
					n := <-granted // which checks that the holder was told
					if !t.Failed() {
						ends(t, lk, holdfast.CauseRemoved)
					}
					time.Sleep(2 * time.Minute) // what is late arrives
					if err := n.lk.Check(); err != nil {
						t.Errorf("%s: the next holder: %v", where, err)
					}
					if err := n.lk.Unlock(t.Context()); err != nil {
						t.Errorf("%s: %v", where, err)
					}
					_ = lk.Unlock(t.Context())
				})
			}
		}
	}
}

// A kicked holder that does not release is removed. A second removal finds the entry moved.
func TestRemovalAfterAKickAndTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		ops, second := newAdministrator(srv, "ops"), newAdministrator(srv, "second")
		lk := mustLock(t, a, "job")
		granted := waitFor(t, b, lk, true)
		local := waitFor(t, a, lk, true) // another goroutine of the holder's session
		if err := ops.Kick(t.Context(), "job", lk.Token(), "deploy"); err != nil {
			t.Fatal(err)
		}
		ends(t, lk, holdfast.CauseKicked)
		time.Sleep(time.Minute)
		begin := mustRemove(t, ops, lk)
		time.Sleep(time.Second)
		mustRemove(t, second, lk)
		after(t, <-granted, begin, toldWithin)
		n := <-local // it did not wait for the Unlock of lk
		after(t, n, n.at, 0)
		ends(t, lk, holdfast.CauseKicked)
		_ = lk.Unlock(t.Context())
	})
}

// With a longer lock delay, the first entry may wait for long before it holds, and is told only then.
func TestRemovalOfAnEntryInItsLockDelay(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		const delay = 20 * time.Second
		slow := func(owner string) *session.Session {
			sess, err := session.New(t.Context(), srv.Link().Client(), &session.Options{
				Owner: owner, LockDelay: delay, StayLost: true, Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = sess.Close(context.WithoutCancel(t.Context())) })
			return sess
		}
		a, b, c := slow("a"), slow("b"), slow("c")
		ops := newAdministrator(srv, "ops")
		lk := mustLock(t, a, "job")
		first := waitFor(t, b, lk, true)
		second := make(chan next, 1)
		go func() {
			lk, err := locker.NewMutex(c, "job").Lock(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if n := <-first; n.lk.Check() == nil {
				t.Error("the entry behind holds before the first was told")
			}
			second <- next{lk, time.Now()}
		}()
		time.Sleep(100 * time.Millisecond)
		srv.Revoke(a.Lease())
		time.Sleep(time.Second) // b is first, and waits for the lock delay
		q, err := ops.Show(t.Context(), admin.Lock, "job")
		h, _ := q.Holder()
		if err != nil || h.Owner != "b" {
			t.Fatal(h, err)
		}
		begin := time.Now()
		if err := ops.Remove(t.Context(), "job", h.Token, "wedged"); err != nil {
			t.Fatal(err)
		}
		after(t, <-second, begin, delay+2*time.Second)
	})
}

func TestRemovalOfWhatDoesNotHoldWritesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		ops := newAdministrator(srv, "ops")
		lk, _ := queueUp(t, "job", a, b)
		q, err := ops.Show(t.Context(), admin.Lock, "job")
		if err != nil {
			t.Fatal(err)
		}
		before := len(srv.History(""))
		if err := ops.Remove(t.Context(), "job", q.Entries[1].Token, "x"); !errors.Is(err, admin.ErrWaits) {
			t.Errorf("a waiter: %v", err)
		}
		if err := ops.Remove(t.Context(), "job", lk.Token()-1, "x"); !errors.Is(err, admin.ErrNotHeld) {
			t.Errorf("another token: %v", err)
		}
		if err := ops.RemoveAt(t.Context(), "holdfast/lock/job/@", lk.Token()-1, "x"); !errors.Is(err, admin.ErrNotHeld) {
			t.Errorf("another token: %v", err)
		}
		if n := len(srv.History("")) - before; n != 0 || ops.link.Count()["LeaseGrant"] != 0 || len(ops.records) != 0 {
			t.Errorf("%d writes, requests %v, records %+v", n, ops.link.Count(), ops.records)
		}
	})
}

// An entry that was moved goes with its lease, and its session key stands: that is the end of a removal, and not a
// loss.
func TestWatchTellsThatALockWasRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, link := newSession(t, srv, "a")
		ops := newAdministrator(srv, "ops")
		lk := mustLock(t, a, "job")
		link.BlackHole() // dead
		var told []admin.What
		for ev, err := range adm.Watch(t.Context(), admin.Lock, "job") {
			if err != nil {
				t.Fatal(err)
			}
			if told = append(told, ev.What); ev.What == admin.Acquired {
				go func() { mustRemove(t, ops, lk) }()
			}
			if ev.What == admin.Released || ev.What == admin.Lost {
				break
			}
		}
		want := []admin.What{admin.Queued, admin.Acquired, admin.Removed, admin.Removed, admin.Released} // asked, moved
		if !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
		key := lease.Open(a.Ref()).SessionKey(a.Lease())
		if len(srv.Keys(key)) != 1 {
			t.Error("the holder's session key is gone")
		}
	})
}

// MinHold keeps the name of a lock that was released. There is no holder to ask, but the name can be freed.
func TestNameThatMinHoldKeepsCanBeFreedAndNotKicked(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		ops := newAdministrator(srv, "ops")
		lk, err := locker.NewMutex(a, "job").With(locker.Options{MinHold: time.Hour}).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := lk.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		granted := waitFor(t, b, lk, true)
		before := srv.Keys(lk.Key())[0].ModRevision
		err = ops.Kick(t.Context(), "job", lk.Token(), "deploy")
		var failed *admin.HolderError
		if !errors.As(err, &failed) || !errors.Is(err, admin.ErrNotHeld) || !failed.Holder.Released() {
			t.Errorf("Kick: %v", err)
		}
		if now := srv.Keys(lk.Key())[0].ModRevision; now != before {
			t.Error("Kick has written something")
		}
		begin := mustRemove(t, ops, lk)
		after(t, <-granted, begin, toldWithin)
	})
}
