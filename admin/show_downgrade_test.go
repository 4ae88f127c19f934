package admin_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func mustLockDowngradable(t *testing.T, sess *session.Session, name string) *locker.DowngradableLock {
	t.Helper()
	lk, err := locker.NewRWMutex(sess, name).LockDowngradable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

// expectShown checks what Show and List say of the lock "job": whether its first holder reads, and how many hold and
// wait.
func expectShown(t *testing.T, adm *admin.Client, shared bool, holders, waiting int) {
	t.Helper()
	q, err := adm.Show(t.Context(), holdfast.KindLock, "job")
	if err != nil {
		t.Fatal(err)
	}
	h, _ := q.Holder()
	if h.Shared != shared || len(q.Holders()) != holders || q.Waiting() != waiting {
		t.Errorf("Show: %+v", q)
	}
	for s, err := range adm.List(t.Context(), holdfast.KindLock, "") {
		if err != nil || s.Holder.Shared != shared || s.Waiting != waiting {
			t.Errorf("List: %+v, %v", s, err)
		}
	}
}

// A lock that can be downgraded has two entries of one create revision, and is one holder or one waiter.
func TestDowngradableLockIsShownAndToldAsOne(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		told := watch(t, adm.Events(ctx, holdfast.KindLock, "job"))
		rd := mustRLock(t, a, "job")
		granted := make(chan *locker.DowngradableLock, 1)
		lockLater(t, func(ctx context.Context) error {
			lk, err := locker.NewRWMutex(b, "job").LockDowngradable(ctx)
			granted <- lk
			return err
		})
		expectShown(t, adm, true, 1, 1)
		if err := rd.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		lk := <-granted
		expectShown(t, adm, false, 1, 0)
		expect(t, told, "queued a 0, acquired a 0, queued b 1, released a 0, acquired b 0")

		late, stop := context.WithCancel(t.Context()) // one that begins in the middle
		defer stop()
		toldLate := watch(t, adm.Events(late, holdfast.KindLock, "job"))
		expect(t, toldLate, "queued b 0, acquired b 0")
		rd, err := lk.Downgrade(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		expectShown(t, adm, true, 1, 0)
		for _, told := range []func() string{told, toldLate} {
			expect(t, told, "released b 0, acquired b 0")
		}
		if err := rd.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		lk = mustLockDowngradable(t, a, "job")
		if err := lk.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		lk = mustLockDowngradable(t, a, "job")
		time.Sleep(3 * time.Second) // its entries say since when they are held
		srv.Revoke(lk.Lease())
		for _, told := range []func() string{told, toldLate} {
			expect(t, told, "released b 0, queued a 0, acquired a 0, released a 0, queued a 0, acquired a 0, lost a 0")
		}
		time.Sleep(31 * time.Second) // a watch that were behind would be followed by another one
		expect(t, told, "")
	})
}

// A page ends between the two entries.
func TestShowLosesNoEntryBetweenTwoPages(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		const before = 999
		for i := range before {
			srv.Put(fmt.Sprintf("%speer-%04d", jobEntries, i), "")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		lockLater(t, func(context.Context) error {
			_, err := locker.NewRWMutex(a, "job").LockDowngradable(ctx)
			return err
		})
		srv.Put(jobEntries+"peer-last", "")
		q, err := adm.Show(t.Context(), holdfast.KindLock, "job")
		if err != nil || len(q.Entries) != before+2 {
			t.Fatalf("%d entries are shown, want %d; %v", len(q.Entries), before+2, err)
		}
		if e := q.Entries[before]; e.Owner != "a" || e.Shared {
			t.Errorf("the lock is shown as %+v", e)
		}
	})
}

// Both entries get the notice, and both are moved: a holder that is never told keeps neither.
func TestKickAndRemoveActOnBothEntriesOfADowngradableLock(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, link := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		ops := newAdministrator(srv, "ops")
		lk := mustLockDowngradable(t, a, "job")
		if err := ops.Kick(t.Context(), holdfast.KindLock, "job", lk.Token(), "deploy"); err != nil {
			t.Fatal(err)
		}
		for _, kv := range srv.Keys(jobEntries) {
			if kv.Version != 2 {
				t.Errorf("%s has no notice", kv.Key)
			}
		}
		ends(t, lk, holdfast.CauseKicked)
		if rd, err := lk.Downgrade(t.Context()); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Downgrade of a kicked lock: %v, %v", rd, err)
		}
		_ = lk.Unlock(t.Context())

		lk = mustLockDowngradable(t, a, "job")
		granted := waitFor(t, b, lk, false)
		link.BlackHole()
		begin := time.Now()
		if err := ops.Remove(t.Context(), holdfast.KindLock, "job", lk.Token(), "wedged"); err != nil {
			t.Fatal(err)
		}
		after(t, <-granted, begin, toldWithin)
	})
}

// A downgradable lock that waits behind a reader does not hold, although it has a reader's entry.
func TestDowngradableLockThatWaitsCannotBeKicked(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		mustRLock(t, a, "job")
		lockLater(t, func(ctx context.Context) error {
			_, err := locker.NewRWMutex(a, "job").LockDowngradable(ctx)
			return err
		})
		q, err := adm.Show(t.Context(), holdfast.KindLock, "job")
		if err != nil || len(q.Entries) != 2 {
			t.Fatal(q, err)
		}
		err = newAdministrator(srv, "ops").Kick(t.Context(), holdfast.KindLock, "job", q.Entries[1].Token, "deploy")
		if !errors.Is(err, admin.ErrWaits) {
			t.Errorf("Kick: %v", err)
		}
	})
}
