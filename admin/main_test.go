package admin_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func TestMain(m *testing.M) { leak.Main(m) }

const jobEntries = "holdfast/lock/job/@/"

// inBubble runs a test in virtual time, against an etcd in memory.
func inBubble(t *testing.T, f func(t *testing.T, srv *etcdfake.Server, adm *admin.Client)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		srv := etcdfake.New(nil)
		t.Cleanup(srv.Close)
		f(t, srv, admin.New(srv.Link().Client(), nil))
	})
}

func newSession(t *testing.T, srv *etcdfake.Server, owner string) (*session.Session, *etcdfake.Link) {
	t.Helper()
	link := srv.Link()
	link.Delay(time.Millisecond)
	sess, err := session.New(t.Context(), link.Client(), &session.Options{
		Owner: owner, Clock: session.MonotonicClock(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		link.Heal()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := sess.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return sess, link
}

// queueUp has the sessions ask for the lock one after another; the first holds it. Each waiter gives up with its
// context.
func queueUp(t *testing.T, name string, sessions ...*session.Session) (held *locker.Lock, giveUp []context.CancelFunc) {
	t.Helper()
	held, err := locker.NewMutex(sessions[0], name).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sess := range sessions[1:] {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		giveUp = append(giveUp, cancel)
		go func() {
			if lk, err := locker.NewMutex(sess, name).Lock(ctx); err == nil {
				<-ctx.Done()
				_ = lk.Unlock(context.WithoutCancel(ctx))
			}
		}()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
	}
	return held, giveUp
}

func mustLock(t *testing.T, sess *session.Session, name string) *locker.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lk, err := locker.NewMutex(sess, name).Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

// held is a lock of any kind.
type held interface {
	Check() error
	Done() <-chan struct{}
}

// ends waits until a lock has ended for a reason, and returns how long that took.
func ends(t *testing.T, lk held, cause holdfast.Cause) time.Duration {
	t.Helper()
	begin := time.Now()
	select {
	case <-lk.Done():
	case <-time.After(time.Minute):
		t.Fatalf("the hold does not end: %v", lk.Check())
	}
	var lost *holdfast.LostError
	if !errors.As(lk.Check(), &lost) || lost.Cause != cause {
		t.Fatalf("Check: %v, want cause %v", lk.Check(), cause)
	}
	return time.Since(begin)
}

// administrator is an admin.Client of its own, with a delay on its way to etcd, that remembers its records.
type administrator struct {
	*admin.Client
	link    *etcdfake.Link
	records []audit.Record
}

func newAdministrator(srv *etcdfake.Server, owner string) *administrator {
	a := &administrator{link: srv.Link()}
	a.link.Delay(time.Millisecond)
	a.Client = admin.New(a.link.Client(), &admin.Options{
		Owner:   owner,
		Auditor: audit.Func(func(_ context.Context, r audit.Record) { a.records = append(a.records, r) }),
	})
	return a
}

func first[T any](seq iter.Seq2[T, error]) error {
	for _, err := range seq {
		return err
	}
	return nil
}

// job is the lock "job", which session a holds, and an administrator.
type job struct {
	srv  *etcdfake.Server
	a    *session.Session
	link *etcdfake.Link // of a
	ops  *administrator
	lk   *locker.Lock
}

// whileHeld runs a test in virtual time while the lock is held.
func whileHeld(t *testing.T, f func(t *testing.T, j *job)) {
	t.Helper()
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, link := newSession(t, srv, "a")
		f(t, &job{srv, a, link, newAdministrator(srv, "ops"), mustLock(t, a, "job")})
	})
}

// waiter has another session wait for the lock: see waitFor.
func (j *job) waiter(t *testing.T, told bool) <-chan next {
	t.Helper()
	b, _ := newSession(t, j.srv, "b")
	return waitFor(t, b, j.lk, told)
}

func (j *job) mustKick(t *testing.T) {
	t.Helper()
	if err := j.ops.Kick(t.Context(), holdfast.KindLock, "job", j.lk.Token(), "deploy"); err != nil {
		t.Fatal(err)
	}
}

// toldWithin is the life of the lease that an entry is moved to: LockDelay and 6 s.
const toldWithin = lockDelay + 6*time.Second

// slack is more than a few round trips and etcd's pause between two looks for expired leases, less than any delay.
const slack = 700 * time.Millisecond

// next is the grant that a waiter gets.
type next struct {
	lk *locker.Lock
	at time.Time
}

// waitFor has a session wait for the lock. When it holds, former must have been told, unless that could not be.
func waitFor(t *testing.T, sess *session.Session, former held, told bool) <-chan next {
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
	if err := ops.Remove(t.Context(), holdfast.KindLock, "job", lk.Token(), "wedged"); err != nil {
		t.Fatal(err)
	}
	return begin
}
