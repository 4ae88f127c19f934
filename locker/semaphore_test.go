package locker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

func mustPermit(t *testing.T, sem *locker.Semaphore, weight int) *locker.Permit {
	t.Helper()
	p, err := sem.Acquire(kit.Within(t, time.Minute), weight)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustGiveBack(t *testing.T, p *locker.Permit) {
	t.Helper()
	if err := p.Release(kit.Within(t, time.Minute)); err != nil {
		t.Errorf("Release: %v", err)
	}
}

func TestSemaphoreDoReleasesWhenTheWorkHasReturned(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		sem := locker.NewSemaphore(kit.Start(t, srv).Sess, "x", 2)
		failed := errors.New("failed")
		err := sem.Do(t.Context(), 2, func(_ context.Context, p *locker.Permit) error {
			err := sem.TryDo(context.Background(), 1, func(context.Context, *locker.Permit) error { return nil })
			if !errors.Is(err, locker.ErrLocked) || !strings.Contains(err.Error(), `semaphore "x" not acquired`) {
				t.Errorf("TryDo: %v", err)
			}
			return failed
		})
		if err != failed {
			t.Error(err)
		}
		if err := sem.TryDo(t.Context(), 2, func(context.Context, *locker.Permit) error { return nil }); err != nil {
			t.Error(err)
		}
		if err := sem.Do(t.Context(), 1, nil); !errors.As(err, new(*holdfast.ArgumentError)) {
			t.Error(err)
		}
		kit.NothingStands(t, srv)
	})
}

func TestSecondPermitInTheSameContextIsRefused(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		sem := locker.NewSemaphore(p.Sess, "x", 2)
		err := sem.Do(t.Context(), 1, func(ctx context.Context, _ *locker.Permit) error {
			if _, err := locker.NewSemaphore(p.Sess, "y", 2).Acquire(ctx, 1); err != nil {
				t.Errorf("another semaphore: %v", err)
			}
			if _, err := locker.NewMutex(p.Sess, "x").Lock(ctx); err != nil {
				t.Errorf("a lock of the same name: %v", err)
			}
			_, err := sem.Acquire(ctx, 1)
			return err
		})
		if !errors.Is(err, holdfast.ErrReentrant) {
			t.Error(err)
		}
	})
}

func TestBadSemaphoresAreRefusedBeforeAnyRequest(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		sem := locker.NewSemaphore(p.Sess, "x", 3)
		argument := func(err error) bool { return errors.As(err, new(*holdfast.ArgumentError)) }
		name := func(err error) bool { return errors.As(err, new(*holdfast.NameError)) }
		limit := func(err error) bool {
			var e *holdfast.LimitError
			return errors.As(err, &e) && e.Weight == 4 && e.Limit == 3
		}
		time.Sleep(20 * kit.OneWay)
		before := p.Link.Count()
		for which, c := range map[string]struct {
			sem    *locker.Semaphore
			weight int
			is     func(error) bool
		}{
			"no permits":        {locker.NewSemaphore(p.Sess, "x", 0), 1, argument},
			"negative":          {locker.NewSemaphore(p.Sess, "x", -3), 1, argument},
			"too many":          {locker.NewSemaphore(p.Sess, "x", locker.MaxPermits+1), 1, argument},
			"weight 0":          {sem, 0, argument},
			"negative weight":   {sem, -1, argument},
			"above the limit":   {sem, 4, limit},
			"no session":        {locker.NewSemaphore(nil, "x", 3), 1, argument},
			"a bad name":        {locker.NewSemaphore(p.Sess, "x/", 3), 1, name},
			"a negative option": {sem.With(locker.Options{MaxHold: -1}), 1, argument},
		} {
			for what, acquire := range map[string]func(context.Context, int) (*locker.Permit, error){
				"Acquire": c.sem.Acquire, "TryAcquire": c.sem.TryAcquire,
			} {
				_, err := acquire(t.Context(), c.weight)
				if !c.is(err) || !errors.As(err, new(*view.AcquireError)) {
					t.Errorf("%s, %s: %v", which, what, err)
				}
			}
		}
		for _, n := range []int{0, -1, locker.MaxPermits + 1} {
			if err := sem.Resize(t.Context(), n); !argument(err) {
				t.Errorf("Resize to %d: %v", n, err)
			}
		}
		if after := p.Link.Count(); !maps.Equal(before, after) {
			t.Errorf("sent %v, before %v", after, before)
		}
	})
}

// The receiver and its copies name the new limit. One that was made with the former limit does not.
func TestResizedSemaphoreNamesTheNewLimit(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		sess := kit.Start(t, srv).Sess
		sem, other := locker.NewSemaphore(sess, "x", 1), locker.NewSemaphore(sess, "x", 1)
		before := sem.With(locker.Options{Owner: "a"})
		mustGiveBack(t, mustPermit(t, sem, 1))
		if err := sem.Resize(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		for _, s := range []*locker.Semaphore{sem, before, sem.With(locker.Options{Owner: "b"})} {
			mustGiveBack(t, mustPermit(t, s, 3))
		}
		var limit *holdfast.LimitError
		if _, err := other.Acquire(t.Context(), 1); !errors.As(err, &limit) || limit.Limit != 3 || limit.Named != 1 {
			t.Error(err)
		}
		if n, err := sem.Limit(t.Context()); n != 3 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}

func TestWaitingForAPermitIsToldAndItsPlaceIsInTheError(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		owner := func(name string) func(*session.Options) { return func(o *session.Options) { o.Owner = name } }
		sem := locker.NewSemaphore(kit.Start(t, srv, owner("first")).Sess, "x", 2)
		held := []*locker.Permit{mustPermit(t, sem, 1), mustPermit(t, sem, 1)}
		told := make(chan string, 100)
		waiter := locker.NewSemaphore(kit.Start(t, srv).Sess, "x", 2).With(locker.Options{
			OnWait: func(p view.Place) { told <- fmt.Sprint(p.Ahead, " ", p.Holder.Owner) },
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := waiter.Acquire(ctx, 1)
		var failed *view.AcquireError
		if !errors.As(err, &failed) || failed.Place.Ahead != 2 || failed.Place.Holder.Owner != "first" {
			t.Errorf("%v", err)
		} else if e := failed.Place.Holder; e.Weight != 1 || e.Token != 0 {
			t.Errorf("a permit of weight 1, which has no token: %+v", e)
		}
		if first := <-told; first != "2 first" {
			t.Errorf("told %q", first)
		}
		for _, p := range held {
			mustGiveBack(t, p)
		}
		kit.NothingStands(t, srv)
	})
}

func TestAuditorIsToldOfPermits(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		records := make(chan audit.Record, 10)
		r := audit.Func(func(_ context.Context, rec audit.Record) { records <- rec })
		sem := locker.NewSemaphore(kit.Start(t, srv).Sess, "x", 1).With(locker.Options{Auditor: r, Owner: "me"})
		p := mustPermit(t, sem, 1)
		mustGiveBack(t, p)
		for _, event := range []audit.Event{audit.Granted, audit.Released} {
			got := <-records
			if got.Event != event || got.Kind != holdfast.KindSemaphore || got.Name != "x" ||
				got.Key != p.Key() || got.Token != 0 {
				t.Errorf("%+v", got)
			}
		}
	})
}

func TestCloseEndsHoldersAndWaitersOfASemaphore(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		p, other := kit.Start(t, srv), kit.Start(t, srv)
		held := mustPermit(t, locker.NewSemaphore(p.Sess, "x", 1), 1)
		got := make(chan error, 2)
		for i, waiter := range []*kit.Process{p, other} {
			sem := locker.NewSemaphore(waiter.Sess, "x", 1)
			go func() {
				got <- sem.Do(ctx, 1, func(context.Context, *locker.Permit) error { return nil })
			}()
			kit.Queued(t, srv, kit.Permits("x"), i+2)
		}
		if err := p.Sess.Close(ctx); err != nil {
			t.Fatal(err)
		}
		if err := held.Check(); !errors.Is(err, holdfast.ErrClosed) {
			t.Error(err)
		}
		if err := <-got; !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("the waiter of the closed session: %v", err)
		}
		if err := <-got; err != nil {
			t.Errorf("the waiter of the other session: %v", err)
		}
		kit.NothingStands(t, srv)
		p.Link.Delay(0) // so that a request would be answered at once
		sem := locker.NewSemaphore(p.Sess, "x", 1)
		if _, err := sem.Limit(ctx); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Limit: %v", err)
		}
		if err := sem.Resize(ctx, 2); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Resize: %v", err)
		}
	})
}
