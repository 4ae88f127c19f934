package admin_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// A holder whose work hangs is told, its entry stands until its lease ends, and then the waiter holds.
func TestRemovedHolderIsToldBeforeTheNextOneHolds(t *testing.T) {
	whileHeld(t, func(t *testing.T, j *job) {
		granted := j.waiter(t, true)
		begin := mustRemove(t, j.ops, j.lk)
		if took := ends(t, j.lk, holdfast.CauseRemoved); took > 2*time.Second {
			t.Errorf("told after %v", took)
		}
		q, err := j.ops.Show(t.Context(), holdfast.KindLock, "job")
		h, _ := q.Holder()
		if n := h.Notice; err != nil || h.Token != j.lk.Token() || !n.Removed || n.By != "ops" || n.Reason != "wedged" ||
			n.Until.Sub(begin) < toldWithin || n.Until.Sub(begin) > toldWithin+slack || h.TTL > toldWithin {
			t.Errorf("meanwhile: %+v, %v", h, err)
		}
		after(t, <-granted, begin, toldWithin)
		var lost *holdfast.LostError
		if err := j.lk.Unlock(t.Context()); !errors.As(err, &lost) || lost.Cause != holdfast.CauseRemoved {
			t.Errorf("Unlock: %v", err)
		}
		if len(j.ops.records) != 1 {
			t.Fatalf("records %+v", j.ops.records)
		}
		if r := j.ops.records[0]; r.Event != audit.Removed || r.By != "ops" || r.Detail != "wedged" || r.Err != nil {
			t.Errorf("record %+v", r)
		}
	})
}

// The holder is alive after all: its release frees the name at once.
func TestRemovedHolderThatReleasesFreesTheNameAtOnce(t *testing.T) {
	whileHeld(t, func(t *testing.T, j *job) {
		granted := j.waiter(t, true)
		mustRemove(t, j.ops, j.lk)
		ends(t, j.lk, holdfast.CauseRemoved)
		released := time.Now()
		_ = j.lk.Unlock(t.Context())
		after(t, <-granted, released, 0)
	})
}

// A dead holder's lease would last for its TTL. The waiter holds as soon as the lease of the removal has ended,
// whether the session key of the holder stands or goes meanwhile.
func TestRemovedLockOfADeadHolderIsFreeSoon(t *testing.T) {
	for what, c := range map[string]struct {
		dead time.Duration // before the removal
	}{
		"while its lease lives": {2 * time.Second},
		"as its lease ends":     {session.DefaultTTL - 2*time.Second},
	} {
		whileHeld(t, func(t *testing.T, j *job) {
			granted := j.waiter(t, false)
			j.link.BlackHole()
			time.Sleep(c.dead)
			begin := mustRemove(t, j.ops, j.lk)
			if after(t, <-granted, begin, toldWithin); t.Failed() {
				t.Error(what)
			}
		})
	}
}

// A kicked holder that does not release is removed. A second removal finds the entry moved.
func TestRemovalAfterAKickAndTwice(t *testing.T) {
	whileHeld(t, func(t *testing.T, j *job) {
		second := newAdministrator(j.srv, "second")
		granted := j.waiter(t, true)
		local := waitFor(t, j.a, j.lk, true) // another goroutine of the holder's session
		j.mustKick(t)
		ends(t, j.lk, holdfast.CauseKicked)
		time.Sleep(time.Minute)
		begin := mustRemove(t, j.ops, j.lk)
		time.Sleep(time.Second)
		mustRemove(t, second, j.lk)
		after(t, <-granted, begin, toldWithin)
		n := <-local // it did not wait for the Unlock of lk
		after(t, n, n.at, 0)
		ends(t, j.lk, holdfast.CauseKicked)
		_ = j.lk.Unlock(t.Context())
	})
}

// The first entry may wait for long before it holds. Its session finds that it was moved within a second, and queues
// again at the back.
func TestRemovalOfAnEntryInItsLockDelay(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		const delay = 20 * time.Second
		slow := func(owner string, link *etcdfake.Link) *session.Session {
			sess, err := session.New(t.Context(), link.Client(), session.Options{
				Owner: owner, LockDelay: delay, StayLost: true, Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = sess.Close(context.WithoutCancel(t.Context())) })
			return sess
		}
		link := srv.Link()
		a, b, c := slow("a", link), slow("b", srv.Link()), slow("c", srv.Link())
		ops := newAdministrator(srv, "ops")
		lk := mustLock(t, a, "job")
		first, second := waitFor(t, b, lk, true), waitFor(t, c, lk, true)
		link.BlackHole() // or else its session deletes its claim once it is told
		t.Cleanup(link.Heal)
		srv.Revoke(a.Lease())
		time.Sleep(time.Second) // b is first, and waits for the lock delay
		q, err := ops.Show(t.Context(), holdfast.KindLock, "job")
		if h, held := q.Holder(); err != nil || held || q.Waiting() != 2 || q.Entries[0].Owner != "b" {
			t.Fatal(h, err)
		}
		begin := time.Now()
		if err := ops.Remove(t.Context(), holdfast.KindLock, "job", q.Entries[0].Token, "wedged"); err != nil {
			t.Fatal(err)
		}
		after(t, <-second, begin, delay+time.Second/2) // c sees the claim when b has left
		if n := <-first; n.lk.Check() != nil || n.lk.Token() < q.Entries[1].Token {
			t.Errorf("the removed one holds with token %v, not by a later entry", n.lk.Token())
		}
	})
}

func TestRemovalOfWhatDoesNotHoldWritesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		ops := newAdministrator(srv, "ops")
		lk, _ := queueUp(t, "job", a, b)
		q, err := ops.Show(t.Context(), holdfast.KindLock, "job")
		if err != nil {
			t.Fatal(err)
		}
		before := len(srv.History(""))
		waits := q.Entries[1].Token
		if err := ops.Remove(t.Context(), holdfast.KindLock, "job", waits, "x"); !errors.Is(err, admin.ErrWaits) {
			t.Errorf("a waiter: %v", err)
		}
		if err := ops.Remove(t.Context(), holdfast.KindLock, "job", lk.Token()-1, "x"); !errors.Is(err, admin.ErrNotHeld) {
			t.Errorf("another token: %v", err)
		}
		err = ops.Remove(t.Context(), admin.LockAt, "holdfast/lock/job/@", lk.Token()-1, "x")
		if !errors.Is(err, admin.ErrNotHeld) {
			t.Errorf("another token: %v", err)
		}
		if n := len(srv.History("")) - before; n != 0 || ops.link.Count()["LeaseGrant"] != 0 || len(ops.records) != 0 {
			t.Errorf("%d writes, requests %v, records %+v", n, ops.link.Count(), ops.records)
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
		err = ops.Kick(t.Context(), holdfast.KindLock, "job", lk.Token(), "deploy")
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

// A holder that is stopped while its lock is removed finds its entry gone, and is told at once. Its record says no more
// than that: the administrator's own record and "holdfast explain" say who has removed the lock, and why.
func TestHolderThatWasStoppedWhileItsLockWasRemovedFindsItsEntryGone(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, link := newSession(t, srv, "a")
		ops := newAdministrator(srv, "ops")
		var ended []audit.Record
		lk, err := locker.NewMutex(a, "job").With(locker.Options{Auditor: audit.Func(
			func(_ context.Context, r audit.Record) {
				if r.Event != audit.Granted {
					ended = append(ended, r)
				}
			})}).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		link.BlackHole()
		mustRemove(t, ops, lk)
		time.Sleep(toldWithin + slack)
		link.Heal()
		if took := ends(t, lk, holdfast.CauseEntryDeleted); took > 2*time.Second {
			t.Errorf("told after %v", took)
		}
		if err := a.Close(t.Context()); err != nil { // at once, as a command does that has lost its lock
			t.Error(err)
		}
		var lost *holdfast.LostError
		if len(ended) != 1 || !errors.As(ended[0].Err, &lost) || lost.Cause != holdfast.CauseEntryDeleted {
			t.Errorf("the holder's records are %+v, want one with the cause %v", ended, holdfast.CauseEntryDeleted)
		}
		if n := len(ops.records); n != 1 || ops.records[0].Event != audit.Removed || ops.records[0].By != "ops" ||
			ops.records[0].Detail != "wedged" {
			t.Errorf("the administrator's records are %+v", ops.records)
		}
	})
}
