package admin_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
)

func TestSemaphoreIsShownWithItsLimitAndItsHolders(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		adm := admin.New(srv.Client(t), admin.Options{})
		sem := locker.NewSemaphore(kit.Start(t, srv).Sess, "a/b", 3)
		var held []*locker.Permit
		for _, weight := range []int{1, 2} {
			p, err := sem.Acquire(ctx, weight)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, p)
		}
		done := make(chan error, 1)
		go func() { done <- sem.Do(ctx, 3, func(context.Context, *locker.Permit) error { return nil }) }()
		kit.Queued(t, srv, kit.Permits("a/b"), 3)

		q, err := adm.Show(ctx, holdfast.KindSemaphore, "a/b")
		if err != nil {
			t.Fatal(err)
		}
		holders := q.Holders()
		if q.Limit != 3 || q.Waiting() != 1 || len(holders) != 2 || holders[0].Key != held[0].Key() ||
			holders[1].Weight != 2 || holders[0].Token != 0 || q.Entries[2].Weight != 3 {
			t.Errorf("%+v", q)
		}
		n := 0
		for s, err := range adm.List(ctx, holdfast.KindSemaphore, "a") {
			if n++; err != nil || s.Name != "a/b" || s.Waiting != 1 || s.Holder.Key != held[0].Key() {
				t.Errorf("%+v, %v", s, err)
			}
		}
		if n != 1 {
			t.Errorf("%d are listed", n)
		}
		for _, p := range held {
			if err := p.Release(ctx); err != nil {
				t.Error(err)
			}
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if q, err := adm.Show(ctx, holdfast.KindSemaphore, "a/b"); err != nil || len(q.Entries) != 0 || q.Limit != 3 {
			t.Errorf("%+v, %v", q, err)
		}
		for range adm.List(ctx, holdfast.KindSemaphore, "") {
			t.Error("one that is free is listed")
		}
	})
}

// Its holder's lease is revoked, and the next one waits for the lock delay.
func TestSemaphoreIsListedWithoutAHolderDuringALockDelay(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		if _, err := locker.NewSemaphore(a, "x", 1).Acquire(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		acquired := make(chan error, 1)
		go func() {
			_, err := locker.NewSemaphore(b, "x", 1).Acquire(t.Context(), 1)
			acquired <- err
		}()
		time.Sleep(100 * time.Millisecond)
		listed := func(held bool, waiting int) {
			t.Helper()
			for s, err := range adm.List(t.Context(), holdfast.KindSemaphore, "") {
				if err != nil || s.Held != held || s.Waiting != waiting {
					t.Errorf("%+v, %v; want held: %t, waiting: %d", s, err, held, waiting)
				}
			}
		}
		listed(true, 1)
		srv.Revoke(a.Lease())
		time.Sleep(100 * time.Millisecond)
		listed(false, 1)
		if err := <-acquired; err != nil {
			t.Fatal(err)
		}
		listed(true, 0)
	})
}

// What docs/operations.md says of a permit whose holder does not let go.
func TestPermitIsFreedByItsEntryOrItsLease(t *testing.T) {
	for name, c := range map[string]struct {
		free  func(srv *etcdfake.Server, e admin.Entry)
		cause holdfast.Cause
		delay time.Duration // until the waiter holds
	}{
		"the entry is deleted": {
			func(srv *etcdfake.Server, e admin.Entry) { srv.Delete(e.Key) }, holdfast.CauseEntryDeleted, time.Second,
		},
		"the lease is revoked": {
			func(srv *etcdfake.Server, e admin.Entry) { srv.Revoke(e.Lease) }, holdfast.CauseRevoked, kit.LockDelay,
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				ctx := kit.Within(t, time.Minute)
				stuck, err := locker.NewSemaphore(kit.Start(t, srv).Sess, "x", 2).Acquire(ctx, 2)
				if err != nil {
					t.Fatal(err)
				}
				waiter, next := locker.NewSemaphore(kit.Start(t, srv).Sess, "x", 2), make(chan *locker.Permit, 1)
				go func() {
					p, err := waiter.Acquire(ctx, 1)
					if err != nil {
						t.Error(err)
					}
					next <- p
				}()
				kit.Queued(t, srv, kit.Permits("x"), 2)
				q, err := admin.New(srv.Client(t), admin.Options{}).Show(ctx, holdfast.KindSemaphore, "x")
				if err != nil || len(q.Holders()) != 1 || q.Entries[0].Key != stuck.Key() {
					t.Fatalf("%+v, %v", q, err)
				}
				c.free(srv, q.Entries[0])
				freed := time.Now()
				p := <-next
				if after := time.Since(freed); after < c.delay || after > c.delay+kit.Prompt {
					t.Errorf("the waiter holds after %v, want %v", after, c.delay)
				}
				<-stuck.Done()
				lost := (*holdfast.LostError)(nil)
				if after := time.Since(freed); !errors.As(stuck.Check(), &lost) || lost.Cause != c.cause || after > 2*time.Second {
					t.Errorf("told %v after %v, want %v within 2s", stuck.Check(), after, c.cause)
				}
				if err := p.Release(ctx); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestEventsOfASemaphoreIsRefused(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		adm := admin.New(srv.Client(t), admin.Options{})
		for _, err := range adm.Events(t.Context(), holdfast.KindSemaphore, "x") {
			if !errors.As(err, new(*holdfast.ArgumentError)) {
				t.Errorf("Watch: %v", err)
			}
		}
	})
}
