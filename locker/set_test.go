package locker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
)

func mustLockAll(t *testing.T, s *locker.Set) *locker.SetLock {
	t.Helper()
	set, err := s.Lock(kit.Within(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestSetExcludesTheMutexesOfItsNames(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := kit.Start(t, srv), kit.Start(t, srv)
		set := mustLockAll(t, locker.NewSet(a.Sess, locker.Write("x"), locker.Read("y")))
		for _, name := range []string{"x", "y"} {
			if _, err := locker.NewMutex(b.Sess, name).TryLock(t.Context()); !errors.Is(err, locker.ErrLocked) {
				t.Errorf("TryLock of %s beside the set: %v", name, err)
			}
		}
		rd, err := locker.NewRWMutex(b.Sess, "y").TryRLock(t.Context())
		if err != nil {
			t.Errorf("TryRLock of y beside the set, which reads it: %v", err)
		}
		waits := lockLater(kit.Within(t, time.Minute), locker.NewMutex(b.Sess, "x"))
		kit.Queued(t, srv, kit.Entries("x"), 2)
		if h, err := set.Holder("x"); err != nil || h.Token() == 0 {
			t.Errorf("Holder of x: %v", err)
		}
		if r, err := set.Reader("y"); err != nil || r == nil {
			t.Errorf("Reader of y: %v", err)
		}
		if err := set.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if err := set.Check(); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("Check after Unlock: %v", err)
		}
		r := <-waits
		if r.err != nil {
			t.Fatal(r.err)
		}
		mustUnlock(t, r.lk)
		if rd != nil {
			_ = rd.Unlock(t.Context())
		}
	})
}

// With several tokens no one of them is right for a guard, whether it is given the set or finds its holder in the
// context. Readers have none, and the lock of an outer Do is not right either: the work belongs to the set.
func TestContextOfASetCarriesTheLockOfItsOnlyWriterForFencing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		outer := mustLock(t, locker.NewMutex(p.Sess, "outer"))
		w, r := locker.Write, locker.Read
		for name, c := range map[string]struct {
			parts   []locker.Part
			carried string
		}{
			"one":                 {[]locker.Part{w("x")}, "x"},
			"one, and readers":    {[]locker.Part{r("y"), w("x"), r("z")}, "x"},
			"two":                 {[]locker.Part{w("x"), w("y")}, ""},
			"three, and a reader": {[]locker.Part{w("x"), r("v"), w("y"), w("z")}, ""},
			"readers":             {[]locker.Part{r("x"), r("y")}, ""},
		} {
			ctx := fencing.NewContext(t.Context(), outer)
			err := locker.NewSet(p.Sess, c.parts...).Do(ctx, func(ctx context.Context, set *locker.SetLock) error {
				h, found := fencing.FromContext(ctx)
				if found != (c.carried != "") || found && h.Name() != c.carried {
					t.Errorf("%s: carries %v, want the lock %q", name, h, c.carried)
				}
				claim, err := fencing.Present(set)
				if found {
					if want := (fencing.Claim{Name: c.carried, Token: h.Token()}); err != nil || claim != want {
						t.Errorf("%s: the set presents %v, %v, want %v", name, claim, err, want)
					}
				} else if !errors.Is(err, holdfast.ErrNoToken) || set.Name() != "" {
					t.Errorf("%s: the set presents %v, %v, as %q", name, claim, err, set.Name())
				}
				_, err = etcdfence.NewWriter(set).Put(ctx, "written", name)
				if ok := err == nil; ok != found || !ok && !errors.Is(err, holdfast.ErrNoToken) {
					t.Errorf("%s: a write for the set: %v", name, err)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		mustUnlock(t, outer)
	})
}

func TestOverlappingSetsDoNotDeadlock(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		a, b := kit.Start(t, srv), kit.Start(t, srv)
		done := make(chan error)
		rounds := 50
		for _, s := range []*locker.Set{
			locker.NewSet(a.Sess, locker.Write("x"), locker.Write("y"), locker.Read("z")),
			locker.NewSet(b.Sess, locker.Write("y"), locker.Write("x")),
			locker.NewSet(b.Sess, locker.Write("z"), locker.Read("x")),
		} {
			go func() { // joined below
				for range rounds {
					if err := s.Do(ctx, func(context.Context, *locker.SetLock) error { return nil }); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestSetTellsTheNamesThatItWasGiven(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		want := []string{"b", "a/c", "a"}
		s := locker.NewSet(p.Sess, locker.Write("b"), locker.Read("a/c"), locker.Write("a"))
		s.Names()[0] = "of the caller"
		if got := s.With(locker.Options{Owner: "x"}).Names(); !slices.Equal(got, want) {
			t.Errorf("the names are %q, not %q", got, want)
		}
		if got := (&locker.Set{}).Names(); len(got) != 0 {
			t.Errorf("a zero Set has the names %q", got)
		}
	})
}

// A name that the set does not hold in that way is told when it is asked for, not by the first write.
func TestSetSaysWhichNamesItHolds(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		set := mustLockAll(t, locker.NewSet(kit.Start(t, srv).Sess, locker.Write("x"), locker.Read("y")))
		for what, ask := range map[string]func() error{
			"Holder of a name that is read":       func() error { _, err := set.Holder("y"); return err },
			"Holder of a misspelled name":         func() error { _, err := set.Holder("X"); return err },
			"Reader of a name that is held alone": func() error { _, err := set.Reader("x"); return err },
			"Reader of no name":                   func() error { _, err := set.Reader(""); return err },
		} {
			var argument *holdfast.ArgumentError
			if err := ask(); !errors.As(err, &argument) || !strings.Contains(err.Error(), `"x" alone, "y" for reading`) {
				t.Errorf("%s: %v", what, err)
			}
		}
		_ = set.Unlock(t.Context())
	})
}
