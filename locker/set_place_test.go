package locker_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

func owned(name string) func(*session.Options) {
	return func(o *session.Options) { o.Owner = name }
}

// An error of a set says which of its locks it waited for, and which client holds that.
func TestErrorsOfSetsNameTheLockThatIsTaken(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := kit.Start(t, srv), kit.Start(t, srv, owned("worker-b"))
		held := mustLock(t, locker.NewMutex(other.Sess, "b"))
		tree, err := locker.NewTreeMutex(other.Sess, "t").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		told := make(chan view.Place, 100)
		onWait := locker.Options{OnWait: func(p view.Place) { told <- p }}
		set := locker.NewSet(p.Sess, locker.Write("a"), locker.Read("b"), locker.Write("c")).With(onWait)
		within := func() context.Context { return kit.Within(t, 3*time.Second) }
		for name, c := range map[string]struct {
			call func() error
			lock string
			want error
		}{
			"Lock":    {func() error { _, err := set.Lock(within()); return err }, "b", context.DeadlineExceeded},
			"TryLock": {func() error { _, err := set.TryLock(within()); return err }, "b", locker.ErrLocked},
			"TreeMutex.Do": {func() error {
				return locker.NewTreeMutex(p.Sess, "t/1/2").Do(within(), doNothing)
			}, "t", context.DeadlineExceeded},
			"TreeMutex.TryDo": {func() error {
				return locker.NewTreeMutex(p.Sess, "t/1").TryDo(within(), doNothing)
			}, "t", locker.ErrLocked},
		} {
			err := c.call()
			var failed *view.AcquireError
			if !errors.As(err, &failed) || !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
				continue
			}
			says := `; "` + c.lock + `" is held by owner "worker-b"`
			if failed.Place.Name != c.lock || failed.Place.Holder.Owner != "worker-b" || failed.Place.Ahead != 1 ||
				!strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v\nplace %+v", name, err, failed.Place)
			}
		}
		if place := <-told; place.Name != "b" || place.Holder.Owner != "worker-b" {
			t.Errorf("OnWait was told %v", place)
		}
		mustUnlock(t, held)
		mustUnlock(t, tree)
		kit.NothingStands(t, srv)

		// It is first in the queue of b, and waits for the lock delay.
		held = mustLock(t, locker.NewMutex(other.Sess, "b"))
		done := make(chan error, 1)
		go func() { _, err := set.Lock(kit.Within(t, time.Second)); done <- err }()
		time.Sleep(time.Second / 2)
		srv.Revoke(held.Lease())
		if err := <-done; !strings.Contains(err.Error(), `first in the queue of "b", and the lock delay had not passed`) {
			t.Error(err)
		}
	})
}

func doNothing(context.Context, *locker.Lock) error { return nil }

// Sets, mutexes and readers of one session exclude one another as those of several do, in the order of their calls.
func TestSetsOfOneSessionHandOver(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		ctx := kit.Within(t, time.Hour)
		holds := map[string]*atomic.Int32{"a": new(atomic.Int32), "b": new(atomic.Int32)}
		order := make(chan string, 100)
		enter := func(who string, names ...string) {
			for _, name := range names {
				if holds[name].Add(1) > 1 {
					t.Errorf("%s and another hold %s", who, name)
				}
			}
			order <- who
			time.Sleep(time.Second)
			for _, name := range names {
				holds[name].Add(-1)
			}
		}
		done := make(chan error)
		run := func(do func() error) {
			go func() { done <- do() }() // received below
			time.Sleep(20 * kit.OneWay)
		}
		mutex := func(who, name string) {
			run(func() error {
				return locker.NewMutex(p.Sess, name).Do(ctx, func(context.Context, *locker.Lock) error {
					enter(who, name)
					return nil
				})
			})
		}
		set := func(who string, names ...string) {
			var parts []locker.Part
			for _, name := range names {
				parts = append(parts, locker.Write(name))
			}
			run(func() error {
				return locker.NewSet(p.Sess, parts...).Do(ctx, func(context.Context, *locker.SetLock) error {
					enter(who, names...)
					return nil
				})
			})
		}
		mutex("1", "a")
		set("2", "b", "a")
		mutex("3", "b")
		set("4", "a", "b")
		set("5", "a")
		if _, err := locker.NewMutex(p.Sess, "b").TryLock(ctx); !errors.Is(err, locker.ErrLocked) {
			t.Errorf("TryLock of a name that a set of this session waits for: %v", err)
		}
		for range 5 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		var got string
		for len(order) > 0 {
			got += <-order
		}
		// Those that are about one name only wait in a line in memory, in which the next one queues when the first has left.
		if got[:2] != "12" || len(got) != 5 {
			t.Errorf("held in the order %s", got)
		}
		kit.NothingStands(t, srv)
	})
}

// The writes of a lock of several entries are refused when one of them is gone: a holder of the path above may be in.
// So are those of a Txn that names what the lock owns.
func TestFencedWriteComparesAllEntries(t *testing.T) {
	for name, acquire := range map[string]func(t *testing.T, p *kit.Process) (fencing.Hold, func(context.Context) error){
		"tree": func(t *testing.T, p *kit.Process) (fencing.Hold, func(context.Context) error) {
			lk, err := locker.NewTreeMutex(p.Sess, "job/7").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return lk, lk.Unlock
		},
		"set": func(t *testing.T, p *kit.Process) (fencing.Hold, func(context.Context) error) {
			set := mustLockAll(t, locker.NewSet(p.Sess, locker.Read("job"), locker.Write("x")))
			h, err := set.Holder("x")
			if err != nil {
				t.Fatal(err)
			}
			return h, set.Unlock
		},
		"reader of a set": func(t *testing.T, p *kit.Process) (fencing.Hold, func(context.Context) error) {
			set := mustLockAll(t, locker.NewSet(p.Sess, locker.Write("job"), locker.Read("x")))
			r, err := set.Reader("x")
			if err != nil {
				t.Fatal(err)
			}
			return r, set.Unlock
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := kit.Start(t, srv)
				owner, unlock := acquire(t, p)
				w := etcdfence.NewWriter(owner)
				if _, err := w.Put(t.Context(), "state", "1"); err != nil {
					t.Fatal(err)
				}
				for _, kv := range srv.Keys("holdfast/") {
					if strings.Contains(string(kv.Key), "/job/@/") {
						srv.Delete(string(kv.Key))
					}
				}
				resp, err := owner.Client().Txn(t.Context()).If(owner.Holding()...).Commit()
				if err != nil || resp.Succeeded {
					t.Errorf("a Txn with Holding without one of the entries: %v, %v", resp, err)
				}
				if _, err := w.Put(t.Context(), "state", "2"); !errors.Is(err, fencing.ErrStale) {
					t.Errorf("Put without one of the entries: %v", err)
				}
				if err := owner.Check(); !errors.Is(err, holdfast.ErrLost) {
					t.Errorf("Check after the refusal: %v", err)
				}
				_ = unlock(t.Context())
				time.Sleep(time.Second)
				kit.NothingStands(t, srv)
			})
		})
	}
}
