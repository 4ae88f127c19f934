package locker_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
)

// expectSent checks what a process sends while do runs.
func expectSent(t *testing.T, step string, p *kit.Process, want map[string]int, do func()) {
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

// parts are n names; every third one is read.
func parts(n int) (all []locker.Part) {
	for i := range n {
		if name := fmt.Sprintf("m%02d", i); i%3 == 2 {
			all = append(all, locker.Read(name))
		} else {
			all = append(all, locker.Write(name))
		}
	}
	return all
}

// A set of any size, and a tree lock of any depth, takes as many requests as a Mutex.
func TestFreeSetsAndTreeLocksCostAsMuchAsAMutex(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := kit.Start(t, srv), kit.Start(t, srv)
		ctx := kit.Within(t, time.Minute)
		time.Sleep(20 * kit.OneWay) // the sessions have set the watches of their session keys
		one, two := map[string]int{"Txn": 1}, map[string]int{"Txn": 2}
		for _, n := range []int{2, 3, locker.MaxSet} {
			s, taken := locker.NewSet(p.Sess, parts(n)...), locker.NewSet(other.Sess, parts(n)[n-1], locker.Write("free"))
			var set *locker.SetLock
			acquire := func(lock func(context.Context) (*locker.SetLock, error)) func() {
				return func() {
					var err error
					if set, err = lock(ctx); err != nil {
						t.Fatal(err)
					}
				}
			}
			unlock := func() {
				if err := set.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
			expectSent(t, fmt.Sprint("Lock of ", n), p, one, acquire(s.Lock))
			if n < 3 { // the last member is exclusive
				expectSent(t, "TryLock, refused", other, one, func() { _, _ = taken.TryLock(ctx) })
			}
			expectSent(t, fmt.Sprint("Unlock of ", n), p, one, unlock)
			expectSent(t, fmt.Sprint("TryLock of ", n), p, two, acquire(s.TryLock))
			expectSent(t, fmt.Sprint("Unlock of ", n), p, one, unlock)
			kit.NothingStands(t, srv)
		}
		for _, depth := range []int{1, 2, locker.MaxSet} {
			tree := locker.NewTreeMutex(p.Sess, strings.Repeat("/a", depth)[1:])
			var lk *locker.Lock
			expectSent(t, fmt.Sprint("Lock at depth ", depth), p, one, func() {
				var err error
				if lk, err = tree.Lock(ctx); err != nil {
					t.Fatal(err)
				}
			})
			expectSent(t, "TryLock, refused", other, one, func() { _, _ = locker.NewTreeMutex(other.Sess, "a").TryLock(ctx) })
			expectSent(t, "Unlock", p, one, func() { mustUnlock(t, lk) })
		}
		m := locker.NewRWMutex(p.Sess, "x")
		var lk *locker.DowngradableLock
		var rd *locker.ReadLock
		expectSent(t, "LockDowngradable", p, one, func() { lk, _ = m.LockDowngradable(ctx) })
		expectSent(t, "Downgrade", p, one, func() { rd, _ = lk.Downgrade(ctx) })
		expectSent(t, "Unlock after Downgrade", p, map[string]int{}, func() { _ = lk.Unlock(ctx) })
		expectSent(t, "Unlock of the ReadLock", p, one, func() { _ = rd.Unlock(ctx) })
	})
}

// For each name that is taken, a watch and the two reads that go with it, as for a Mutex.
func TestContendedSetPaysForEachNameThatIsTaken(t *testing.T) {
	for taken := range 4 {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			p, other := kit.Start(t, srv), kit.Start(t, srv)
			ctx := kit.Within(t, time.Minute)
			var held []*locker.Lock
			for i := range taken {
				held = append(held, mustLock(t, locker.NewMutex(other.Sess, fmt.Sprintf("m%02d", i))))
			}
			time.Sleep(20 * kit.OneWay)
			want := map[string]int{"Txn": 1 + 2*taken, "Watch": taken}
			if taken == 0 {
				delete(want, "Watch")
			}
			var set *locker.SetLock
			expectSent(t, fmt.Sprintf("Lock of five names, of which %d are taken", taken), p, want, func() {
				done := make(chan *locker.SetLock, 1)
				go func() { // ends with ctx
					set, _ := locker.NewSet(p.Sess, locker.Write("m00"), locker.Write("m01"), locker.Write("m02"), locker.Write("m03"),
						locker.Read("m04")).Lock(ctx)
					done <- set
				}()
				for _, lk := range held {
					time.Sleep(time.Second)
					mustUnlock(t, lk)
				}
				set = <-done
			})
			_ = set.Unlock(ctx)
		})
	}
}
