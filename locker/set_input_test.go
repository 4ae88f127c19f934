package locker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/view"
)

func TestBadSetsAndTreeLocksAreTypedErrorsBeforeAnythingIsSent(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		ctx := kit.Within(t, time.Minute)
		time.Sleep(20 * kit.OneWay)
		var none context.Context
		set := func(s *locker.Set) func() error {
			return func() error { _, err := s.Lock(ctx); return err }
		}
		tree := func(m *locker.TreeMutex) func() error {
			return func() error { _, err := m.Lock(ctx); return err }
		}
		w := locker.Write
		for name, c := range map[string]struct {
			call     func() error
			argument string // "": a NameError
		}{
			"no parts":         {set(locker.NewSet(p.Sess)), "parts"},
			"zero Set":         {set(&locker.Set{}), "parts"},
			"zero TryDo":       {func() error { return (&locker.Set{}).TryDo(ctx, nil) }, "fn"},
			"64 parts":         {set(locker.NewSet(p.Sess, parts(64)...)), "parts"},
			"twice":            {set(locker.NewSet(p.Sess, w("a"), w("b"), w("a"))), "parts"},
			"twice, once read": {set(locker.NewSet(p.Sess, w("a"), locker.Read("a"))), "parts"},
			"bad name":         {set(locker.NewSet(p.Sess, w("a"), w("b/@"))), ""},
			"zero Part":        {set(locker.NewSet(p.Sess, w("a"), locker.Part{})), ""},
			"nil session":      {set(locker.NewSet(nil, w("a"), w("b"))), "sess"},
			"nil context": {func() error {
				_, err := locker.NewSet(p.Sess, w("a"), w("b")).Lock(none)
				return err
			}, "ctx"},
			"zero TreeMutex":    {tree(&locker.TreeMutex{}), "receiver"},
			"tree: nil session": {tree(locker.NewTreeMutex(nil, "a/b")), "sess"},
			"tree: bad path":    {tree(locker.NewTreeMutex(p.Sess, "a//b")), ""},
			"tree: slash":       {tree(locker.NewTreeMutex(p.Sess, "/")), ""},
			"tree: 64 segments": {tree(locker.NewTreeMutex(p.Sess, strings.Repeat("/a", 64)[1:])), ""},
			"downgradable: shared": {downgradable(ctx, locker.NewRWMutex(p.Sess,
				"a").With(locker.Options{Reentrant: true})), "Options.Reentrant"},
			"downgradable: no read": {doDowngradable(ctx, locker.NewRWMutex(p.Sess, "a")), "write, read"},
			"downgradable: zero":    {downgradable(ctx, &locker.RWMutex{}), "receiver"},
		} {
			var argument *holdfast.ArgumentError
			var bad *holdfast.NameError
			var failed *view.AcquireError
			err := c.call()
			switch {
			case !errors.As(err, &failed):
				t.Errorf("%s: %v is no AcquireError", name, err)
			case c.argument != "" && (!errors.As(err, &argument) || argument.Argument != c.argument):
				t.Errorf("%s: %v, want an ArgumentError about %s", name, err, c.argument)
			case c.argument == "" && !errors.As(err, &bad):
				t.Errorf("%s: %v, want a NameError", name, err)
			}
		}
		if n := len(srv.History("holdfast/lock/")) + len(srv.History("holdfast/tree/")); n != 0 {
			t.Errorf("%d entries were put", n)
		}
	})
}

func downgradable(ctx context.Context, m *locker.RWMutex) func() error {
	return func() error { _, err := m.LockDowngradable(ctx); return err }
}

func doDowngradable(ctx context.Context, m *locker.RWMutex) func() error {
	return func() error {
		return m.DoDowngradable(ctx, func(context.Context, *locker.Lock) error { return nil }, nil)
	}
}

// A Set does not change with the slice that it was made from.
func TestSetKeepsItsMembers(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		all := []locker.Part{locker.Write("a"), locker.Write("b")}
		s := locker.NewSet(p.Sess, all...)
		all[0], all[1] = locker.Read("c"), locker.Read("c")
		set := mustLockAll(t, s)
		for _, name := range []string{"a", "b"} {
			if _, err := set.Holder(name); err != nil {
				t.Errorf("the parts have changed: %v", err)
			}
		}
		_ = set.Unlock(t.Context())
	})
}

func TestSetLockedInsideAnotherIsReentrant(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		ctx := kit.Within(t, time.Minute)
		err := locker.NewSet(p.Sess, locker.Write("a"), locker.Write("b"), locker.Read("c")).Do(ctx,
			func(ctx context.Context, _ *locker.SetLock) error {
				for _, s := range []*locker.Set{
					locker.NewSet(p.Sess, locker.Write("x"), locker.Write("b")),
					locker.NewSet(p.Sess, locker.Read("x"), locker.Read("c")),
					locker.NewSet(p.Sess, locker.Write("a")),
				} {
					if _, err := s.Lock(ctx); !errors.Is(err, holdfast.ErrReentrant) {
						t.Errorf("Lock of a set that shares a name: %v", err)
					}
				}
				if _, err := locker.NewRWMutex(p.Sess, "c").RLock(ctx); !errors.Is(err, holdfast.ErrReentrant) {
					t.Errorf("RLock of a name of the set: %v", err)
				}
				return locker.NewSet(p.Sess, locker.Write("x"), locker.Write("y")).Do(ctx,
					func(context.Context, *locker.SetLock) error { return nil })
			})
		if err != nil {
			t.Error(err)
		}
		err = locker.NewTreeMutex(p.Sess, "t/1").Do(ctx, func(ctx context.Context, _ *locker.Lock) error {
			for _, path := range []string{"t", "t/1", "t/1/2", "t/2"} {
				if _, err := locker.NewTreeMutex(p.Sess, path).Lock(ctx); !errors.Is(err, holdfast.ErrReentrant) {
					t.Errorf("Lock of %s inside t/1: %v", path, err)
				}
			}
			return locker.NewTreeMutex(p.Sess, "u").Do(ctx, func(context.Context, *locker.Lock) error { return nil })
		})
		if err != nil {
			t.Error(err)
		}
	})
}
