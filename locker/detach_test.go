package locker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// detachable is a Lock, a ReadLock or a Permit.
type detachable interface {
	Check() error
	Key() string
	Name() string
	Detach(ctx context.Context, within time.Duration) (locker.Ticket, error)
	WithContext(ctx context.Context) (context.Context, context.CancelFunc)
	AcquiredRevision() int64
	String() string
}

func mustDetach(t *testing.T, lk detachable, within time.Duration) locker.Ticket {
	t.Helper()
	ticket, err := lk.Detach(kit.Within(t, time.Minute), within)
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

func mustAttach(t *testing.T, sess *session.Session, ticket locker.Ticket, o locker.Options) *locker.Lock {
	t.Helper()
	lk, err := locker.Attach(kit.Within(t, time.Minute), sess, ticket, o)
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

// A lock is acquired in one process and released in another. The first one has gone by then. Those behind wait on.
func TestDetachedLockIsReleasedByAnotherProcess(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := kit.Start(t, srv), kit.Start(t, srv)
		lk := mustLock(t, locker.NewMutex(a.Sess, "x"))
		ctx, cancel := lk.WithContext(t.Context())
		defer cancel()
		ticket := mustDetach(t, lk, time.Hour)
		if err := lk.Check(); !errors.Is(err, holdfast.ErrReleased) || !errors.Is(context.Cause(ctx), holdfast.ErrReleased) {
			t.Errorf("Check %v, cause %v", err, context.Cause(ctx))
		}
		mustUnlock(t, lk)
		waiter := lockLater(t.Context(), locker.NewMutex(kit.Start(t, srv).Sess, "x"))
		if err := a.Sess.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Minute)
		next := mustAttach(t, b.Sess, ticket, locker.Options{Owner: "b"})
		if next.Token() != lk.Token() || next.Key() != lk.Key() || next.Check() != nil || !owns(srv, next) {
			t.Errorf("%v, %v: %v, in etcd %v", lk, next, next.Check(), kit.Standing(srv, "x"))
		}
		time.Sleep(time.Hour)
		if next.Check() != nil || len(waiter) > 0 {
			t.Errorf("Check %v, and %d waiters hold", next.Check(), len(waiter))
		}
		released := time.Now()
		mustUnlock(t, next)
		if r := <-waiter; r.err != nil || time.Since(released) > time.Second {
			t.Errorf("the waiter holds after %v: %v", time.Since(released), r.err)
		} else {
			mustUnlock(t, r.lk)
		}
		kit.NothingStands(t, srv)
	})
}
