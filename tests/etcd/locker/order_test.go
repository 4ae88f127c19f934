package locker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
)

// Invariant 10, and invariant 7 within a process.
func TestGoroutinesOfOneSessionHoldOneAtATimeInCallOrder(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{})
	mu := locker.NewMutex(sess, "counter")
	first := mustLock(t, mu)
	const n = 20
	var order []int // protected by the lock under test
	var wg sync.WaitGroup
	ctx := deadline(t)
	for i := range n {
		joined := &joinSignal{Context: ctx, joined: make(chan struct{})}
		wg.Go(func() {
			// Each goroutine uses its own Mutex value for the same lock.
			err := locker.NewMutex(sess, "counter").Do(joined, func(context.Context, *locker.Lock) error {
				order = append(order, i)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		<-joined.joined
	}
	if got := entries(t, srv, "counter"); len(got) != 1 {
		t.Errorf("%d entries in etcd for one session, want only the holder's", len(got))
	}
	if err := first.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if !slices.IsSorted(order) || len(order) != n {
		t.Errorf("order %v", order)
	}
	assertOneHolderAtATime(t, srv, "counter", n+1)
}

// joinSignal closes joined when Lock starts to wait: Lock calls Done only after it has queued.
type joinSignal struct {
	context.Context
	once   sync.Once
	joined chan struct{}
}

func (j *joinSignal) Done() <-chan struct{} {
	j.once.Do(func() { close(j.joined) })
	return j.Context.Done()
}

func assertOneHolderAtATime(t *testing.T, srv *etcdtest.Server, name string, want int) {
	t.Helper()
	all := intervals(t, srv, name)
	if len(all) != want {
		t.Errorf("%d entries ever, want %d", len(all), want)
	}
	for i, iv := range all {
		if iv.to == 0 {
			t.Errorf("entry %s was left behind", iv.key)
		}
		if i > 0 && iv.to < all[i-1].to {
			t.Errorf("entry %d was removed before entry %d", i, i-1)
		}
	}
}

// Invariants 7 and 9 between sessions, checked against etcd's history.
func TestManySessionsHoldOneAtATimeInFIFOOrderWithGrowingTokens(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	const sessions = 8
	times := rounds.Of(15, 6)
	type hold struct{ token, acquired int64 }
	var holds []hold // protected by the lock under test; the race detector checks that
	var wg sync.WaitGroup
	for range sessions {
		sess := open(t, srv.Client(t), session.Options{})
		wg.Go(func() {
			mu := locker.NewMutex(sess, "shared")
			for range times {
				err := mu.Do(context.Background(), func(_ context.Context, lk *locker.Lock) error {
					holds = append(holds, hold{int64(lk.Token()), lk.AcquiredRevision()})
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	all := intervals(t, srv, "shared")
	if len(holds) != sessions*times || len(all) != len(holds) {
		t.Fatalf("%d holds, %d entries, want %d", len(holds), len(all), sessions*times)
	}
	for i, h := range holds {
		if h.token != all[i].from {
			t.Fatalf("hold %d has token %d, want %d by queue order", i, h.token, all[i].from)
		}
		if i > 0 && h.acquired < all[i-1].to {
			t.Fatalf("hold %d was acquired at revision %d, but the previous entry existed until %d", i, h.acquired, all[i-1].to)
		}
		if i > 0 && h.token <= holds[i-1].token {
			t.Fatalf("token %d after %d", h.token, holds[i-1].token)
		}
	}
}

// Invariant 7: B, queued between A and C, gives up.
func TestCanceledWaiterDoesNotLetOthersPassTheHolder(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	a := open(t, srv.Client(t), session.Options{})
	b := open(t, srv.Client(t), session.Options{})
	c := open(t, srv.Client(t), session.Options{})
	held := mustLock(t, locker.NewMutex(a, "abc"))
	bCtx, cancel := context.WithCancel(deadline(t))
	bDone := lockLater(bCtx, locker.NewMutex(b, "abc"))
	srv.WaitForKeys(t, "holdfast/lock/abc/@/", 2)
	cDone := lockLater(deadline(t), locker.NewMutex(c, "abc"))
	srv.WaitForKeys(t, "holdfast/lock/abc/@/", 3)
	cancel()
	if r := <-bDone; !errors.Is(r.err, context.Canceled) {
		t.Fatalf("B: %v", r.err)
	}
	if kvs := entries(t, srv, "abc"); len(kvs) != 2 {
		t.Errorf("B's Lock returned, but its entry remains: %v", kvs)
	}
	// B's leaving woke C. Work on another lock gives C time to acquire wrongly.
	for range 20 {
		if err := locker.NewMutex(c, "elsewhere").Do(deadline(t),
			func(context.Context, *locker.Lock) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case r := <-cDone:
		t.Fatalf("C acquired the lock (%v) while A holds it", r)
	default:
	}
	if err := held.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if r := <-cDone; r.err != nil || r.lk.Token() <= held.Token() {
		t.Errorf("C: %+v", r)
	}
}

type result struct {
	lk  *locker.Lock
	err error
}

// lockLater calls Lock on another goroutine.
func lockLater(ctx context.Context, mu *locker.Mutex) <-chan result {
	done := make(chan result, 1)
	go func() { // ends with ctx; the test receives from done
		lk, err := mu.Lock(ctx)
		done <- result{lk, err}
	}()
	return done
}

// lockBehind is like lockLater, and returns when the call has queued in its session.
func lockBehind(ctx context.Context, mu *locker.Mutex) <-chan result {
	joined := &joinSignal{Context: ctx, joined: make(chan struct{})}
	done := lockLater(joined, mu)
	<-joined.joined
	return done
}
