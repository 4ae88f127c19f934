package locker_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
)

func TestEveryStepStaysWithinItsRPCBudget(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := kit.Start(t, srv), kit.Start(t, srv)
		muA, muB := locker.NewMutex(a.Sess, "x"), locker.NewMutex(b.Sess, "x")
		expect := func(step string, p *kit.Process, want map[string]int, do func()) {
			t.Helper()
			before := p.Link.Count()
			do()
			sent := p.Link.Count()
			for method, n := range before {
				sent[method] -= n
			}
			maps.DeleteFunc(sent, func(_ string, n int) bool { return n == 0 })
			if !maps.Equal(sent, want) {
				t.Errorf("%s: %v, budget %v", step, sent, want)
			}
		}
		must := func(lk *locker.Lock, err error) *locker.Lock {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			return lk
		}
		got := func(waiter <-chan result) *locker.Lock {
			t.Helper()
			r := <-waiter
			return must(r.lk, r.err)
		}

		time.Sleep(20 * kit.OneWay) // the sessions have set the watches of their session keys
		var held, next *locker.Lock
		var waiter <-chan result
		ctx := kit.Within(t, time.Minute)
		expect("Lock, free", a, map[string]int{"Txn": 1}, func() { held = must(muA.Lock(ctx)) })
		expect("TryLock, held by another", b, map[string]int{"Txn": 1}, func() { _, _ = muB.TryLock(ctx) })
		expect("TryLock, held by the same session", a, map[string]int{}, func() { _, _ = muA.TryLock(ctx) })
		expect("Lock, contended, until it waits for its turn", b, map[string]int{"Txn": 2, "Watch": 1}, func() {
			waiter = lockLater(ctx, muB)
			kit.Queued(t, srv, kit.Entries("x"), 2)
		})
		expect("Unlock", a, map[string]int{"Txn": 1}, func() {
			// The other message is the end of the watch.
			expect("Lock, contended, from the wake-up", b, map[string]int{"Txn": 1}, func() {
				if err := held.Unlock(ctx); err != nil {
					t.Error(err)
				}
				next = got(waiter)
			})
		})
		waiter = lockLater(ctx, muB)
		time.Sleep(kit.OneWay)
		expect("hand-over between two goroutines of one session", b, map[string]int{"Txn": 1}, func() {
			if err := next.Unlock(ctx); err != nil {
				t.Error(err)
			}
			next = got(waiter)
		})
		minHold := muB.WithMinHold(time.Minute)
		mustUnlock(t, next)
		expect("Lock, free, with MinHold", b, map[string]int{"Txn": 1}, func() { next = must(minHold.Lock(ctx)) })
		expect("Unlock, with MinHold", b, map[string]int{"LeaseGrant": 1, "Txn": 1}, func() { mustUnlock(t, next) })
		expect("TryLock, taken by MinHold of another", a, map[string]int{"Txn": 1}, func() { _, _ = muA.TryLock(ctx) })
		expect("TryLock, taken by its own MinHold", b, map[string]int{"Txn": 1}, func() { _, _ = muB.TryLock(ctx) })
		next = must(locker.NewMutex(b.Sess, "y").Lock(ctx))
		expect("Unlock again", b, map[string]int{"Txn": 1}, func() {
			_ = next.Unlock(context.Background())
			_ = next.Unlock(context.Background())
		})
	})
}
