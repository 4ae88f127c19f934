package locker_test

import (
	"context"
	"maps"
	"testing"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// The RPCs of each step, counted at the client. Renewals are told apart by
// their TTL of ten minutes: none falls into the test.
func TestEveryStepKeepsItsBudgetOfRPCs(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	open600 := func() (*session.Session, *etcdtest.Link) {
		link := srv.Link(t)
		sess := open(t, link.Client(), session.Options{TTL: 600e9})
		settled(t, link)
		return sess, link
	}
	a, aLink := open600()
	b, bLink := open600()
	muA, muB := locker.NewMutex(a, "x"), locker.NewMutex(b, "x")
	armed := false
	spent := func(link *etcdtest.Link, step func()) etcdtest.Counts {
		before := link.Count()
		step()
		sent := link.Count().Since(before)
		if armed && sent["Watch"] <= 1 {
			// The watch is cancelled when it has served: one more message in
			// its stream, at some time or other.
			delete(sent, "Watch")
		}
		maps.DeleteFunc(sent, func(_ string, n int) bool { return n == 0 })
		return sent
	}
	expect := func(step string, got, want etcdtest.Counts) {
		t.Helper()
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, budget %v", step, got, want)
		}
	}
	must := func(lk *locker.Lock, err error) *locker.Lock {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return lk
	}

	var lk *locker.Lock
	expect("Lock, free", spent(aLink, func() { lk = must(muA.Lock(deadline(t))) }), etcdtest.Counts{"Txn": 1})
	expect("TryLock, held by another", spent(bLink, func() { _, _ = muB.TryLock(deadline(t)) }), etcdtest.Counts{"Range": 1})
	expect("TryLock, held by the same session", spent(aLink, func() { _, _ = muA.TryLock(deadline(t)) }), etcdtest.Counts{})

	var waiter <-chan result
	expect("Lock, contended, until it waits", spent(bLink, func() {
		before := bLink.Count()["Txn"]
		waiter = lockLater(deadline(t), muB)
		if err := bLink.Wait(deadline(t), "Txn", before+2); err != nil {
			t.Fatal(err)
		}
	}), etcdtest.Counts{"Txn": 2, "Watch": 1})

	armed = true
	var next *locker.Lock
	expect("Lock, contended, from the wake-up", spent(bLink, func() {
		expect("Unlock", spent(aLink, func() {
			if err := lk.Unlock(deadline(t)); err != nil {
				t.Error(err)
			}
		}), etcdtest.Counts{"Txn": 1})
		r := <-waiter
		next = must(r.lk, r.err)
	}), etcdtest.Counts{"Txn": 1})

	waiter = lockBehind(deadline(t), muB)
	expect("hand-over between two goroutines of one session", spent(bLink, func() {
		if err := next.Unlock(deadline(t)); err != nil {
			t.Error(err)
		}
		r := <-waiter
		next = must(r.lk, r.err)
	}), etcdtest.Counts{"Txn": 1})
	expect("Unlock again", spent(bLink, func() { _ = next.Unlock(context.Background()); _ = next.Unlock(context.Background()) }), etcdtest.Counts{"Txn": 1})
}

func TestCheckOfALockAllocatesNothing(t *testing.T) {
	srv := etcdtest.Start(t)
	lk := mustLock(t, locker.NewMutex(open(t, srv.Client(t), session.Options{}), "x"))
	if n := testing.AllocsPerRun(1000, func() { _ = lk.Check() }); n != 0 {
		t.Errorf("%v allocations per Check", n)
	}
}
