package admin_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func mustRLock(t *testing.T, sess *session.Session, name string) *locker.ReadLock {
	t.Helper()
	lk, err := locker.NewRWMutex(sess, name).RLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

// lockLater asks for a lock on a goroutine that ends with the test, and keeps what it gets.
func lockLater(t *testing.T, lock func(context.Context) error) {
	t.Helper()
	go func() { _ = lock(t.Context()) }()
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
}

func TestReadersAreShownAndToldAsHoldersTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		told := watch(t, adm.Events(ctx, holdfast.KindLock, "job"))
		first, second := mustRLock(t, a, "job"), mustRLock(t, b, "job")
		lockLater(t, func(ctx context.Context) error { _, err := locker.NewMutex(a, "job").Lock(ctx); return err })
		lockLater(t, func(ctx context.Context) error { _, err := locker.NewRWMutex(b, "job").RLock(ctx); return err })

		q, err := adm.Show(t.Context(), holdfast.KindLock, "job")
		if err != nil {
			t.Fatal(err)
		}
		var holders []string
		for _, e := range q.Holders() {
			holders = append(holders, e.Key)
		}
		if !slices.Equal(holders, []string{first.Key(), second.Key()}) || q.Waiting() != 2 || !q.Entries[3].Shared {
			t.Errorf("holders %q, %d wait", holders, q.Waiting())
		}
		for s, err := range adm.List(t.Context(), holdfast.KindLock, "") {
			if err != nil || s.Holder.Key != first.Key() || s.Waiting != 2 {
				t.Errorf("List: %+v, %v", s, err)
			}
		}
		expect(t, told, "queued a 0, acquired a 0, queued b 0, acquired b 0, queued a 1, queued b 2")
		for _, lk := range []*locker.ReadLock{first, second} {
			if err := lk.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
		expect(t, told, "released a 2, released b 1, acquired a 1")
	})
}

func TestReaderIsKickedAndRemovedBesideAnother(t *testing.T) {
	for name, c := range map[string]struct {
		ask   func(*administrator, holdfast.Token) error
		cause holdfast.Cause
	}{
		"kicked": {func(ops *administrator, token holdfast.Token) error {
			return ops.Kick(context.Background(), holdfast.KindLock, "job", token, "deploy")
		}, holdfast.CauseKicked},
		"removed": {func(ops *administrator, token holdfast.Token) error {
			return ops.Remove(context.Background(), holdfast.KindLock, "job", token, "wedged")
		}, holdfast.CauseRemoved},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
				a, _ := newSession(t, srv, "a")
				b, _ := newSession(t, srv, "b")
				first, second := mustRLock(t, a, "job"), mustRLock(t, b, "job")
				lockLater(t, func(ctx context.Context) error { _, err := locker.NewMutex(a, "job").Lock(ctx); return err })
				lockLater(t, func(ctx context.Context) error { _, err := locker.NewRWMutex(b, "job").RLock(ctx); return err })
				q, err := adm.Show(t.Context(), holdfast.KindLock, "job")
				if err != nil {
					t.Fatal(err)
				}
				ops := newAdministrator(srv, "ops")
				for _, waiter := range q.Entries[2:] {
					if err := c.ask(ops, waiter.Token); !errors.Is(err, admin.ErrWaits) {
						t.Errorf("a waiter is %s: %v", name, err)
					}
				}
				if err := c.ask(ops, q.Entries[1].Token); err != nil {
					t.Fatal(err)
				}
				select {
				case <-second.Done():
				case <-time.After(3 * time.Second):
				}
				var lost *holdfast.LostError
				if err := second.Check(); !errors.As(err, &lost) || lost.Cause != c.cause {
					t.Errorf("the reader that was %s: %v", name, err)
				}
				if err := first.Check(); err != nil {
					t.Errorf("the other reader: %v", err)
				}
				_ = second.Unlock(t.Context())
				if err := first.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				q, err = adm.Show(t.Context(), holdfast.KindLock, "job")
				if err != nil || len(q.Holders()) != 1 || q.Holders()[0].Shared {
					t.Errorf("after the readers: %+v, %v", q, err)
				}
			})
		})
	}
}
