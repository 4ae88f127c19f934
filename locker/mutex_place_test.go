package locker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

func owner(name string) func(*session.Options) {
	return func(o *session.Options) { o.Owner = name }
}

// refused returns the place in the error of a call that got no lock.
func refused(t *testing.T, want error, lk *locker.Lock, err error) view.Place {
	t.Helper()
	var failed *view.AcquireError
	if lk != nil || !errors.As(err, &failed) || !errors.Is(err, want) {
		t.Fatalf("%v, %v", lk, err)
	}
	if known := strings.Contains(err.Error(), "; "+failed.Place.String()); known != failed.Place.Known() {
		t.Errorf("%v and its place, %v", err, failed.Place)
	}
	return failed.Place
}

func tryLock(t *testing.T, mu *locker.Mutex) view.Place {
	t.Helper()
	lk, err := mu.TryLock(kit.Within(t, time.Minute))
	return refused(t, locker.ErrLocked, lk, err)
}

func timedOut(t *testing.T, mu *locker.Mutex, after time.Duration) view.Place {
	t.Helper()
	lk, err := mu.Lock(kit.Within(t, after))
	return refused(t, context.DeadlineExceeded, lk, err)
}

// expectPlace compares what people see of a place with the holder's owner and the number ahead.
func expectPlace(t *testing.T, what string, p view.Place, owner string, ahead int) {
	t.Helper()
	if p.Holder.Owner != owner || p.Ahead != ahead || !p.Known() {
		t.Errorf("%s: %+v, want owner %q, %d ahead", what, p, owner, ahead)
	}
}

func TestErrLockedAndATimeoutSayWhoHoldsAndHowManyAreAhead(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b, c, d := kit.Start(t, srv, owner("a")), kit.Start(t, srv, owner("b")), kit.Start(t, srv), kit.Start(t, srv)
		began := time.Now()
		held := mustLock(t, locker.NewMutex(a.Sess, "x"))
		expectPlace(t, "TryLock", tryLock(t, locker.NewMutex(b.Sess, "x")), "a", 1)
		_ = lockLater(t.Context(), locker.NewMutex(b.Sess, "x"))
		kit.Queued(t, srv, kit.Entries("x"), 2)
		time.Sleep(3 * time.Second) // the entry says since when it is held
		expectPlace(t, "TryLock behind a waiter", tryLock(t, locker.NewMutex(c.Sess, "x")), "a", 2)
		p := timedOut(t, locker.NewMutex(d.Sess, "x"), time.Second)
		expectPlace(t, "Lock", p, "a", 2)
		h := p.Holder
		if h.Token != held.Token() || h.Lease != held.Lease() || h.Key != held.Key() || h.PID == 0 || h.Foreign ||
			h.HeldAt.Before(began.Truncate(time.Millisecond)) || h.HeldAt.After(time.Now()) {
			t.Errorf("holder %+v", h)
		}
		if s := p.String(); !strings.HasPrefix(s, `held by owner "a", host "`) || !strings.HasSuffix(s, "; 1 more ahead") {
			t.Error(s)
		}
		mustUnlock(t, held)
	})
}

func TestToTellThePlaceCostsOneReadEachTime(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := kit.Start(t, srv, owner("a")), kit.Start(t, srv)
		mustLock(t, locker.NewMutex(a.Sess, "x"))
		time.Sleep(3 * time.Second)
		for name, mu := range map[string]*locker.Mutex{
			"without OnWait": locker.NewMutex(b.Sess, "x"),
			"with OnWait":    locker.NewMutex(b.Sess, "x").With(locker.Options{OnWait: func(view.Place) {}}),
		} {
			before := b.Link.Count()
			expectPlace(t, name, timedOut(t, mu, 200*time.Millisecond), "a", 1)
			sent := b.Link.Count()
			for method, n := range before {
				sent[method] -= n
			}
			maps.DeleteFunc(sent, func(_ string, n int) bool { return n == 0 })
			// Enqueue, the look after the watch stands, the removal, and the place with the error. OnWait is told once.
			want := map[string]int{"Txn": 4, "Watch": 1}
			if name == "with OnWait" {
				want["Txn"]++
			}
			if !maps.Equal(sent, want) {
				t.Errorf("%s: %v, want %v", name, sent, want)
			}
		}
	})
}

func TestGoroutinesInLineAskForTheirPlace(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := kit.Start(t, srv, owner("a")), kit.Start(t, srv, owner("b"))
		mu := locker.NewMutex(b.Sess, "x")
		theirs := mustLock(t, locker.NewMutex(a.Sess, "x"))
		ctx, cancel := context.WithCancel(t.Context())
		head := lockLater(ctx, mu)
		kit.Queued(t, srv, kit.Entries("x"), 2)
		_ = lockLater(ctx, mu)
		time.Sleep(time.Millisecond)
		before := b.Link.Count()["Txn"]
		expectPlace(t, "TryLock behind two goroutines that wait", tryLock(t, mu), "", 2) // it sends nothing
		expectPlace(t, "Lock behind two goroutines that wait", timedOut(t, mu, 100*time.Millisecond), "a", 3)
		if n := b.Link.Count()["Txn"] - before; n != 1 {
			t.Errorf("%d Txns, want a read for Lock", n)
		}
		mustUnlock(t, theirs)
		held := (<-head).lk
		p := timedOut(t, mu, 100*time.Millisecond)
		expectPlace(t, "Lock behind one that holds and one that waits", p, "b", 2)
		if p.Holder.Token != held.Token() || p.Holder.Key != held.Key() {
			t.Errorf("holder %+v", p.Holder)
		}
		_, err := mu.TryLock(t.Context())
		expectPlace(t, "TryLock behind one that holds and one that waits", refused(t, locker.ErrLocked, nil, err), "", 2)
		if !strings.Contains(err.Error(), "a goroutine of this session") {
			t.Error(err)
		}
		cancel()
		mustUnlock(t, held)
	})
}

// The head of a line gives up: its entry is handed off to the next goroutine, which tells as well who is ahead.
func TestHeadOfALineThatGivesUpSaysWhoHolds(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b, c := kit.Start(t, srv, owner("a")), kit.Start(t, srv, owner("b")), kit.Start(t, srv)
		held := mustLock(t, locker.NewMutex(a.Sess, "x"))
		next := lockLater(t.Context(), locker.NewMutex(b.Sess, "x"))
		kit.Queued(t, srv, kit.Entries("x"), 2)
		mu := locker.NewMutex(c.Sess, "x")
		given := make(chan view.Place)
		go func() {
			lk, err := mu.Lock(kit.Within(t, 10*time.Second))
			given <- refused(t, context.DeadlineExceeded, lk, err)
		}()
		kit.Queued(t, srv, kit.Entries("x"), 3)
		ctx, cancel := context.WithCancel(t.Context())
		_ = lockLater(ctx, mu)
		time.Sleep(time.Second)
		mustUnlock(t, held) // c is not woken
		lk := (<-next).lk
		c.Plan(nil)
		expectPlace(t, "Lock", <-given, "b", 1)
		if n := c.Counts(); n["hand-off"] != 1 || n["remove"] != 0 {
			t.Errorf("sent %v", n)
		}
		mustUnlock(t, lk)
		cancel()
	})
}

func TestPlaceIsNotKnownIfEtcdDoesNotAnswer(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := kit.Start(t, srv, owner("a")), kit.Start(t, srv)
		held := mustLock(t, locker.NewMutex(a.Sess, "x"))
		time.AfterFunc(time.Second, b.Link.BlackHole)
		for _, name := range []string{"x", "y"} { // was queued; was never answered
			if p := timedOut(t, locker.NewMutex(b.Sess, name), 3*time.Second); p.Known() {
				t.Errorf("%s: %+v", name, p)
			}
		}
		b.Heal()
		mustUnlock(t, held)
	})
}

func TestHolderOfAnotherClientOrFormatIsToldAsFarAsItIsKnown(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		srv.Put("/locks/x/694d7fe4a5d9e103", "") // as etcd's own locks do
		srv.Put("/locks/y/"+strings.Repeat("k", 500), strings.Repeat("\x1b", 100_000))
		srv.Put(kit.Entries("old")+"694d-AAAAAAAAAAAAAAAA", `{"v":0,"who":"worker"}`)
		for want, mu := range map[string]*locker.Mutex{
			`another client's key "/locks/x/694d7fe4a5d9e103"`:           locker.NewMutexAt(p.Sess, "/locks/x"),
			`another client's key "/locks/y/kkk`:                         locker.NewMutexAt(p.Sess, "/locks/y"),
			`held by key "holdfast/lock/old/@/694d-AAAAAAAAAAAAAAAA", t`: locker.NewMutex(p.Sess, "old"),
		} {
			for how, place := range map[string]view.Place{"TryLock": tryLock(t, mu), "Lock": timedOut(t, mu, time.Second)} {
				s := place.String()
				if !strings.Contains(s, want) || len(s) > 2000 || strings.Contains(s, "\x1b") || place.Ahead != 1 {
					t.Errorf("%s: %s", how, s)
				}
			}
		}
	})
}

// The token of an entry put before the epoch was raised needs a read more, which is not made.
func TestPlaceLeavesOutATokenThatItDoesNotKnow(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := kit.Start(t, srv, owner("a")), kit.Start(t, srv)
		held := mustLock(t, locker.NewMutex(a.Sess, "x"))
		if _, err := etcdfence.BumpEpoch(t.Context(), srv.Client(t), "", 3, nil); err != nil {
			t.Fatal(err)
		}
		if p := tryLock(t, locker.NewMutex(b.Sess, "x")); p.Holder.Token != 0 || p.Holder.Owner != "a" {
			t.Errorf("%+v", p)
		}
		mustUnlock(t, held)
		held = mustLock(t, locker.NewMutex(a.Sess, "x"))
		if p := tryLock(t, locker.NewMutex(b.Sess, "x")); p.Holder.Token != held.Token() || held.Token().Epoch() != 3 {
			t.Errorf("%+v, held with %v", p, held.Token())
		}
	})
}

// The queue was empty when it was read, and is not when the entry is to be put.
func TestErrLockedOfAPutThatIsRefusedSaysWhoHolds(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := kit.Start(t, srv, owner("a")), kit.Start(t, srv)
		b.PlanOne("enqueue", etcdfake.Fate{Request: 20 * kit.OneWay})
		time.AfterFunc(10*kit.OneWay, func() { mustLock(t, locker.NewMutex(a.Sess, "x")) })
		expectPlace(t, "TryLock", tryLock(t, locker.NewMutex(b.Sess, "x")), "a", 1)
	})
}

// waits records the calls of an OnWait as "owner ahead".
type waits struct{ told chan string }

func newWaits() waits { return waits{make(chan string, 100)} }

func (w waits) options() locker.Options {
	return locker.Options{OnWait: func(p view.Place) { w.told <- fmt.Sprintf("%s %d", p.Holder.Owner, p.Ahead) }}
}

func (w waits) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	time.Sleep(20 * kit.OneWay)
	var got []string
	for len(w.told) > 0 {
		got = append(got, <-w.told)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: told %q, want %q", when, got, want)
	}
}

func TestOnWaitIsToldThePlaceWhenQueuedAndAtEachWakeUp(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b, c := kit.Start(t, srv, owner("a")), kit.Start(t, srv, owner("b")), kit.Start(t, srv, owner("c"))
		w := newWaits()
		mu := locker.NewMutex(c.Sess, "x").With(w.options())
		mustUnlock(t, mustLock(t, mu))
		w.expect(t, "free")
		held := mustLock(t, locker.NewMutex(a.Sess, "x"))
		ctx, giveUp := context.WithCancel(t.Context())
		_ = lockLater(ctx, locker.NewMutex(b.Sess, "x"))
		kit.Queued(t, srv, kit.Entries("x"), 2)
		next := lockLater(t.Context(), mu)
		kit.Queued(t, srv, kit.Entries("x"), 3)
		w.expect(t, "queued", "a 2")
		line := lockLater(t.Context(), mu)
		w.expect(t, "in line", "a 3")
		giveUp()
		w.expect(t, "the entry ahead has left", "a 1")
		time.Sleep(35 * time.Second)
		w.expect(t, "30 s later", "a 1")
		srv.CancelWatches(errors.New("no leader"))
		time.Sleep(time.Second)
		w.expect(t, "after a watch that failed", "a 1")
		srv.Revoke(held.Lease())
		w.expect(t, "the holder is revoked: the lock delay", " 0")
		lk := (<-next).lk
		w.expect(t, "held")
		held = mustLockBehind(t, srv, locker.NewMutex(a.Sess, "x"), lk)
		w.expect(t, "the next in line queues behind another", "a 1")
		mustUnlock(t, held)
		mustUnlock(t, (<-line).lk)
		w.expect(t, "held by the next in line")
	})
}

// mustLockBehind queues mu, unlocks what is held, and returns the lock.
func mustLockBehind(t *testing.T, srv *etcdfake.Server, mu *locker.Mutex, held *locker.Lock) *locker.Lock {
	t.Helper()
	next := lockLater(t.Context(), mu)
	kit.Queued(t, srv, kit.Entries(mu.Name()), 2)
	mustUnlock(t, held)
	r := <-next
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.lk
}

func TestSlowOnWaitDelaysNothingAndIsCalledOneAtATime(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b, c := kit.Start(t, srv, owner("a")), kit.Start(t, srv), kit.Start(t, srv)
		held := mustLock(t, locker.NewMutex(a.Sess, "x"))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		_ = lockLater(ctx, locker.NewMutex(c.Sess, "x"))
		kit.Queued(t, srv, kit.Entries("x"), 2)
		calls, running := make(chan view.Place, 10), make(chan struct{}, 1)
		mu := locker.NewMutex(b.Sess, "x").With(locker.Options{OnWait: func(p view.Place) {
			select {
			case running <- struct{}{}:
			default:
				t.Error("two calls at the same time")
			}
			calls <- p
			time.Sleep(5 * time.Minute)
			<-running
		}})
		next := lockLater(t.Context(), mu)
		time.Sleep(4 * time.Minute) // it is due every 30 s
		expectPlace(t, "the first call", <-calls, "a", 2)
		time.Sleep(2 * time.Minute)
		expectPlace(t, "the second, of all that have come due", <-calls, "a", 1)
		began := time.Now()
		mustUnlock(t, held)
		lk := (<-next).lk
		if took := time.Since(began); took > kit.Prompt || len(calls) != 0 {
			t.Errorf("held after %v, %d calls", took, len(calls))
		}
		mustUnlock(t, lk)
		closed := time.Now()
		var stuck *session.CallbackError
		if err := b.Sess.Close(kit.Within(t, time.Hour)); !errors.As(err, &stuck) || time.Since(closed) > 2*kit.CloseTimeout {
			t.Errorf("Close: %v after %v", err, time.Since(closed))
		}
		time.Sleep(10 * time.Minute)
		if err := b.Sess.Close(kit.Within(t, time.Hour)); err != nil || len(calls) != 0 {
			t.Errorf("%v, %d calls: one began after Lock had returned", err, len(calls))
		}
	})
}

func TestOnWaitThatPanicsIsLoggedAndHarmsNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := kit.Start(t, srv), kit.Start(t, srv)
		held := mustLock(t, locker.NewMutex(a.Sess, "x"))
		mu := locker.NewMutex(b.Sess, "x").With(locker.Options{OnWait: func(view.Place) { panic("boom") }})
		next := lockLater(t.Context(), mu)
		kit.Queued(t, srv, kit.Entries("x"), 2)
		mustUnlock(t, held)
		if r := <-next; r.err != nil {
			t.Error(r.err)
		}
	})
}
