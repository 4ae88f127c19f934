package locker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

func TestLockIsOneEntryWhoseCreateRevisionIsTheToken(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{})
	mu := locker.NewMutex(sess, "billing/job-7").With(locker.Options{Owner: "me"})
	lk := mustLock(t, mu)
	kvs := entries(t, srv, "billing/job-7")
	if len(kvs) != 1 || string(kvs[0].Key) != lk.Key() || kvs[0].CreateRevision != int64(lk.Token()) ||
		clientv3.LeaseID(kvs[0].Lease) != lk.Lease() || lk.Lease() != sess.Lease() {
		t.Fatalf("entries %v, token %v, lease %x", kvs, lk.Token(), lk.Lease())
	}
	for _, want := range []string{`"v":2`, `"owner":"me"`, `"pid":`, `"mode":"exclusive"`, `"queued_at":"`, `"host":`} {
		if !strings.Contains(string(kvs[0].Value), want) {
			t.Errorf("entry %s lacks %s", kvs[0].Value, want)
		}
	}
	if lk.AcquiredRevision() < int64(lk.Token()) || lk.Client() != sess.Client() || lk.Check() != nil {
		t.Errorf("acquired at %d, Check %v", lk.AcquiredRevision(), lk.Check())
	}
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if left := srv.Keys(t, "holdfast/lock/"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := lk.Check(); err != holdfast.ErrReleased {
		t.Errorf("Check after Unlock: %v", err)
	}
	<-lk.Done()
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Errorf("second Unlock: %v", err)
	}
}

func TestTryLockReturnsErrLockedWithoutQueueing(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	a := open(t, srv.Client(t), session.Options{})
	b := open(t, srv.Client(t), session.Options{})
	lk, err := locker.NewMutex(a, "x").TryLock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, mu := range map[string]*locker.Mutex{"same session": locker.NewMutex(a, "x"),
		"other session": locker.NewMutex(b, "x")} {
		_, err := mu.TryLock(deadline(t))
		var ae *view.AcquireError
		if !errors.Is(err, locker.ErrLocked) || !errors.As(err, &ae) || ae.Name != "x" {
			t.Errorf("%s: %v", name, err)
		}
		ran := false
		do := func(context.Context, *locker.Lock) error { ran = true; return nil }
		if err := mu.TryDo(deadline(t), do); !errors.Is(err, locker.ErrLocked) || ran {
			t.Errorf("%s: TryDo: %v, ran %v", name, err, ran)
		}
	}
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	ran := false
	if err := locker.NewMutex(b, "x").TryDo(deadline(t),
		func(context.Context, *locker.Lock) error { ran = true; return nil }); err != nil || !ran {
		t.Errorf("TryDo on a free lock: %v", err)
	}
	if n := len(intervals(t, srv, "x")); n != 2 {
		t.Errorf("%d entries ever, want 2", n)
	}
}

func TestConcurrentTryLocksHaveAtMostOneWinner(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	var wg sync.WaitGroup
	var mutex sync.Mutex
	held, wins := 0, 0
	for range 6 {
		mu := locker.NewMutex(open(t, srv.Client(t), session.Options{}), "x")
		wg.Go(func() {
			for range 20 {
				lk, err := mu.TryLock(context.Background())
				switch {
				case errors.Is(err, locker.ErrLocked):
					continue
				case err != nil:
					t.Error(err)
					return
				}
				mutex.Lock()
				held++
				wins++
				if held > 1 {
					t.Error("two holders at once")
				}
				held--
				mutex.Unlock()
				if err := lk.Unlock(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if wins == 0 {
		t.Error("no TryLock succeeded")
	}
	// On a busy machine a request is sent again, and a copy may arrive after etcd refused the first one. It puts an
	// entry that nothing holds, and that the session removes.
	srv.WaitForKeys(t, "holdfast/lock/x/@/", 0)
	entries := len(intervals(t, srv, "x"))
	if entries < wins {
		t.Errorf("%d entries ever for %d holders", entries, wins)
	}
	assertOneHolderAtATime(t, srv, "x", entries)
}

func TestBadInputIsRefusedBeforeAnyRPC(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	sess := open(t, link.Client(), session.Options{})
	settled(t, link)
	before := link.Count()
	for _, name := range []string{"", "/", "/a", "a/", "a//b", "@", "a/@/b", "@void", "a/@b", strings.Repeat("n", 513)} {
		mu := locker.NewMutex(sess, name)
		for verb, err := range map[string]error{
			"CheckName": locker.CheckName(name),
			"Lock":      second(mu.Lock(deadline(t))),
			"TryLock":   second(mu.TryLock(deadline(t))),
			"Do":        mu.Do(deadline(t), func(context.Context, *locker.Lock) error { return nil }),
		} {
			var bad *holdfast.NameError
			if !errors.As(err, &bad) || bad.Name != name {
				t.Errorf("%s(%.20q): %v", verb, name, err)
			}
		}
	}
	good := locker.NewMutex(sess, "good")
	for input, err := range map[string]error{
		"empty prefix": second(locker.NewMutexAt(sess, "").Lock(deadline(t))),
		"long prefix":  second(locker.NewMutexAt(sess, strings.Repeat("p", 513)).Lock(deadline(t))),
		"nil session":  second(locker.NewMutex(nil, "x").Lock(deadline(t))),
		"nil sess, At": second(locker.NewMutexAt(nil, "x").Lock(deadline(t))),
		"nil ctx":      second(good.Lock(noContext)),
		"nil fn":       good.Do(deadline(t), nil),
		"nil TryDo fn": good.TryDo(deadline(t), nil),
		"long owner":   second(good.With(locker.Options{Owner: strings.Repeat("o", 257)}).Lock(deadline(t))),
		"neg. MaxHold": second(good.With(locker.Options{MaxHold: -1}).Lock(deadline(t))),
	} {
		var ae *view.AcquireError
		var bad *holdfast.NameError
		var arg *holdfast.ArgumentError
		if !errors.As(err, &ae) || !errors.As(err, &bad) && !errors.As(err, &arg) {
			t.Errorf("%s: %v", input, err)
		}
	}
	if sent := link.Count().Since(before); sent["Txn"]+sent["Put"]+sent["Watch"] != 0 {
		t.Errorf("RPCs were sent: %v", sent)
	}
	for _, name := range []string{"a", "a/b", "ünïcode", "with space", "a\x00b", "\xff\xfe", ".", "a@b",
		strings.Repeat("n", 512)} {
		if err := locker.CheckName(name); err != nil {
			t.Errorf("%.20q is rejected: %v", name, err)
		}
		if err := locker.NewMutex(sess, name).Do(deadline(t),
			func(context.Context, *locker.Lock) error { return nil }); err != nil {
			t.Errorf("%.20q: %v", name, err)
		}
	}
}

// noContext is a nil context; linters reject a literal nil.
var noContext context.Context

func second(_ *locker.Lock, err error) error { return err }

// Upstream's lock "a" blocks while "a/b" is held.
func TestNestedNamesAreSeparateLocks(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{})
	other := open(t, srv.Client(t), session.Options{Namespace: "other"})
	for _, mu := range []*locker.Mutex{
		locker.NewMutex(sess, "a/b"), locker.NewMutex(sess, "a"), locker.NewMutex(sess, "a/b/c"), locker.NewMutex(other, "a"),
	} {
		if _, err := mu.TryLock(deadline(t)); err != nil {
			t.Errorf("%s: %v", mu.Name(), err)
		}
	}
}

func TestReentryIsAnErrorInsteadOfAHang(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	sess, sess2 := open(t, cli, session.Options{}), open(t, cli, session.Options{})
	outer, inner := locker.NewMutex(sess, "outer"), locker.NewMutex(sess, "inner")
	err := outer.Do(deadline(t), func(ctx context.Context, lk *locker.Lock) error {
		return inner.Do(ctx, func(ctx context.Context, _ *locker.Lock) error {
			for what, mu := range map[string]*locker.Mutex{
				"innermost": inner, "outer": outer,
				"another session": locker.NewMutex(sess2, "outer"),
				"as a prefix":     locker.NewMutexAt(sess, "holdfast/lock/outer/@"),
			} {
				if _, err := mu.Lock(ctx); !errors.Is(err, holdfast.ErrReentrant) {
					t.Errorf("%s: Lock: %v", what, err)
				}
				if _, err := mu.TryLock(ctx); !errors.Is(err, holdfast.ErrReentrant) {
					t.Errorf("%s: TryLock: %v", what, err)
				}
			}
			// A released lock may be acquired again.
			if err := lk.Unlock(deadline(t)); err != nil {
				return err
			}
			return outer.Do(context.WithoutCancel(ctx), func(context.Context, *locker.Lock) error { return nil })
		})
	})
	if err != nil {
		t.Error(err)
	}
	// With a context made by NewContext.
	lk := mustLock(t, outer)
	if _, err := outer.Lock(fencing.NewContext(deadline(t), lk)); !errors.Is(err, holdfast.ErrReentrant) {
		t.Errorf("with NewContext: %v", err)
	}
	// Without the holder in the context it queues, as another goroutine would.
	if _, err := outer.Lock(soon(t, 50*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a plain context: %v", err)
	}
}

func TestReentrantLocksKeepOneEntryUntilTheLastUnlock(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	mu := locker.NewRWMutex(open(t, cli, session.Options{}), "x").With(locker.Options{Reentrant: true})
	other := locker.NewMutex(open(t, cli, session.Options{}), "x")
	var inner *locker.ReadLock
	err := mu.Do(deadline(t), func(ctx context.Context, lk *locker.Lock) (err error) {
		if inner, err = mu.RLock(ctx); err != nil {
			return err
		}
		return mu.TryDo(ctx, func(_ context.Context, again *locker.Lock) error {
			if again.Token() != lk.Token() || len(entries(t, srv, "x")) != 1 {
				t.Errorf("token %v, want %v; entries %v", again.Token(), lk.Token(), entries(t, srv, "x"))
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.TryLock(deadline(t)); !errors.Is(err, locker.ErrLocked) {
		t.Errorf("TryLock before the last Unlock: %v", err)
	}
	if err := inner.Unlock(deadline(t)); err != nil {
		t.Error(err)
	}
	if _, err := other.TryLock(deadline(t)); err != nil {
		t.Errorf("TryLock after the last Unlock: %v", err)
	}
}

func TestErrorsNameTheLockTheLeaseAndTheState(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{LockDelay: time.Minute})
	lk := mustLock(t, locker.NewMutex(sess, "x"))
	_, err := locker.NewMutex(sess, "x").Lock(soon(t, 20*time.Millisecond))
	for _, want := range []string{`lock "x"`, fmt.Sprintf("%x", int64(sess.Lease())), "connected", "deadline exceeded"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	srv.Revoke(t, lk.Lease())
	<-lk.Done()
	var lost *holdfast.LostError
	if err := lk.Unlock(deadline(t)); !errors.As(err, &lost) || lost.Name != "x" || lost.Token != lk.Token() ||
		lost.Cause != holdfast.CauseRevoked {
		t.Errorf("Unlock of a lost lock: %v", err)
	}
}

// Clients with different key prefixes mean different keys by the same name.
func TestSameNameUnderDifferentClientPrefixesIsADifferentLock(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	under := func(prefix string) *locker.Mutex {
		cli := srv.Client(t)
		cli.KV = namespace.NewKV(cli.KV, prefix)
		cli.Watcher = namespace.NewWatcher(cli.Watcher, prefix)
		cli.Lease = namespace.NewLease(cli.Lease, prefix)
		return locker.NewMutex(open(t, cli, session.Options{}), "x")
	}
	a, b := under("a/"), under("b/")
	err := a.Do(deadline(t), func(ctx context.Context, _ *locker.Lock) error {
		return b.Do(ctx, func(context.Context, *locker.Lock) error { return nil })
	})
	if err != nil {
		t.Error(err)
	}
}
