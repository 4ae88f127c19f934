package locker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// etcd moves both keys, and keeps their create revision, which is the token. The leases of the first session may end.
func TestDetachedLockGoesOnInAnotherSession(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	first, second := open(t, srv.Client(t), session.Options{}), open(t, srv.Client(t), session.Options{})
	lk := mustLock(t, locker.NewMutex(first, "job"))
	ticket, err := lk.Detach(deadline(t), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(deadline(t)); err != nil {
		t.Fatal(err)
	}
	next, err := locker.Attach(deadline(t), second, ticket, locker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if next.Token() != lk.Token() || next.Key() != lk.Key() || next.Check() != nil {
		t.Errorf("%v has become %v, Check %v", lk, next, next.Check())
	}
	if _, err := locker.NewMutex(second, "job").TryLock(deadline(t)); !errors.Is(err, locker.ErrLocked) {
		t.Errorf("TryLock: %v", err)
	}
	if err := next.Unlock(deadline(t)); err != nil {
		t.Error(err)
	}
	var ended *holdfast.TicketError
	if _, err := locker.Attach(deadline(t), second, ticket, locker.Options{}); !errors.As(err, &ended) ||
		ended.End != holdfast.TicketUsed {
		t.Errorf("attached again: %v", err)
	}
}

// A session that attaches, and then loses its lease, is told before the next one holds. The session that has queued
// lives, and says nothing of it.
func TestLossOfWhatWasAttachedIsToldBeforeAWaiterHolds(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	var sessions [3]*session.Session
	for i := range sessions {
		sessions[i] = open(t, srv.Client(t), session.Options{LockDelay: time.Second})
	}
	ticket, err := mustLock(t, locker.NewMutex(sessions[0], "job")).Detach(deadline(t), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	lk, err := locker.Attach(deadline(t), sessions[1], ticket, locker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	revoked := time.Now()
	if _, err := cli.Revoke(deadline(t), sessions[1].Lease()); err != nil {
		t.Fatal(err)
	}
	next := mustLock(t, locker.NewMutex(sessions[2], "job"))
	if waited := time.Since(revoked); waited < time.Second || !errors.Is(lk.Check(), holdfast.ErrLost) {
		t.Errorf("the next one holds after %v, and Check of the lost lock is %v", waited, lk.Check())
	}
	if err := next.Unlock(deadline(t)); err != nil {
		t.Error(err)
	}
}

// Both keys go with the lease of the ticket, by its time or by a kick, so the next one is not delayed.
func TestEndOfATicketDelaysNone(t *testing.T) {
	t.Parallel()
	const lockDelay = time.Minute
	srv := etcdtest.Start(t)
	first := open(t, srv.Client(t), session.Options{LockDelay: lockDelay})
	second := open(t, srv.Client(t), session.Options{LockDelay: lockDelay})
	for name, end := range map[string]func(lk *locker.Lock) error{
		"its time is over": func(*locker.Lock) error { return nil },
		"kicked": func(lk *locker.Lock) error {
			adm := admin.New(srv.Client(t), admin.Options{})
			return adm.Kick(deadline(t), holdfast.KindLock, lk.Name(), lk.Token(), "test")
		},
	} {
		lk := mustLock(t, locker.NewMutex(first, name))
		within := time.Second
		if name == "kicked" {
			within = time.Hour
		}
		ticket, err := lk.Detach(deadline(t), within)
		if err != nil {
			t.Fatal(err)
		}
		if err := end(lk); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		began := time.Now()
		next := mustLock(t, locker.NewMutex(second, name))
		if waited := time.Since(began); waited > lockDelay/2 {
			t.Errorf("%s: the next one waited for %v", name, waited)
		}
		var ended *holdfast.TicketError
		if _, err := locker.Attach(deadline(t), second, ticket, locker.Options{}); !errors.As(err, &ended) ||
			(ended.End == holdfast.TicketKicked) != (name == "kicked") {
			t.Errorf("%s: %v", name, err)
		}
		if err := next.Unlock(deadline(t)); err != nil {
			t.Error(err)
		}
	}
}
