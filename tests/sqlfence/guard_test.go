package sqlfence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

func TestWorkIsCommittedWithTheMark(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		if err := g.Do(t.Context(), "r", holdfast.Token(5), d.write("r", 5, "a")); err != nil {
			t.Fatal(err)
		}
		if works, _ := d.works(t, "r"); !slices.Equal(works, []string{"a"}) || d.mark(t, "r") != 5 {
			t.Errorf("works %v, mark %v", works, d.mark(t, "r"))
		}
	})
}

func TestErrorOfTheWorkRollsBackWorkAndMark(t *testing.T) {
	broken := errors.New("broken")
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		for _, mark := range []holdfast.Token{0, 5} { // a first write, and a later one
			err := g.Do(t.Context(), "r", holdfast.Token(7), func(ctx context.Context, tx *sql.Tx) error {
				if err := d.write("r", 7, "never")(ctx, tx); err != nil {
					return err
				}
				return broken
			})
			if err != broken {
				t.Errorf("Do: %v, want fn's own error", err)
			}
			if works, _ := d.works(t, "r"); slices.Contains(works, "never") || d.mark(t, "r") != mark {
				t.Errorf("works %v, mark %v", works, d.mark(t, "r"))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := g.Do(ctx, "r", holdfast.Token(5), d.write("r", 5, "a")); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestSmallerTokenIsRefusedAndWritesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		var records []audit.Record
		keep := audit.Func(func(_ context.Context, r audit.Record) { records = append(records, r) })
		g := d.guard(t, &sqlfence.Options{Auditor: keep})
		// Above 2⁵³, where a float would lose the last bits.
		const later = holdfast.Token(1<<58 + 1)
		if err := g.Do(t.Context(), "r", later, d.write("r", later, "a")); err != nil {
			t.Fatal(err)
		}
		err := g.Do(t.Context(), "r", later-1, func(context.Context, *sql.Tx) error {
			t.Error("fn was called for a stale token")
			return nil
		})
		below, ok := errors.AsType[*fencing.MarkError](err)
		if !errors.Is(err, fencing.ErrStale) || !ok || below.Resource != "r" || below.Claim.Token != later-1 ||
			below.Mark != later {
			t.Errorf("Do: %v (%+v)", err, below)
		}
		if d.mark(t, "r") != later {
			t.Errorf("mark %v", d.mark(t, "r"))
		}
		if len(records) != 1 || records[0].Event != audit.Refused || records[0].Resource != "r" ||
			records[0].Mark != later {
			t.Errorf("records %+v", records)
		}
	})
}

func TestEqualTokenIsAdmittedAgain(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		d.exec(t, "INSERT INTO accounts (id, balance) VALUES (1, 10)")
		for range 3 {
			err := g.Do(t.Context(), "r", holdfast.Token(5), func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = 11 WHERE id = 1")
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestMarksOfDifferentResourcesAreIndependent(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		// Names that a collation, a pattern or trimming could confuse.
		names := []string{
			"a", "A", "á", "a ", " a", "a%", "a_", "a'", `a"`, "a\\", "a\n", "a/b", "日本", "?", "$1", "a\u0301",
		}
		for i, name := range names {
			if err := g.Do(t.Context(), name, holdfast.Token(len(names)-i), d.write("x", 1, "")); err != nil {
				t.Fatalf("%q: %v", name, err)
			}
		}
		for i, name := range names {
			if got, want := d.mark(t, name), holdfast.Token(len(names)-i); got != want {
				t.Errorf("mark of %q is %v, want %v", name, got, want)
			}
		}
	})
}

func TestPanicRollsBackAndContinues(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		for name, end := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
			ended := make(chan any, 1)
			go func() { // joined by the receive
				var returned bool
				defer func() {
					if v := recover(); v != nil || returned {
						ended <- v
					} else {
						ended <- "Goexit"
					}
				}()
				_ = g.Do(t.Context(), "r", holdfast.Token(9), func(ctx context.Context, tx *sql.Tx) error {
					if err := d.write("r", 9, "never")(ctx, tx); err != nil {
						t.Error(err)
					}
					end()
					return nil
				})
				returned = true
			}()
			if v := <-ended; v != "boom" && v != "Goexit" {
				t.Errorf("%s became %v", name, v)
			}
			// If the row were still locked, this would wait until the timeout.
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := g.Do(ctx, "r", holdfast.Token(1), d.write("r", 1, "next")); err != nil {
				t.Errorf("after a %s: %v", name, err)
			}
		}
		if works, _ := d.works(t, "r"); !slices.Equal(works, []string{"next", "next"}) || d.mark(t, "r") != 1 {
			t.Errorf("works %v, mark %v", works, d.mark(t, "r"))
		}
	})
}

func TestContextThatEndsDuringTheWorkCommitsNothing(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		err := g.Do(ctx, "r", holdfast.Token(9), func(ctx context.Context, tx *sql.Tx) error {
			if err := d.write("r", 9, "never")(ctx, tx); err != nil {
				t.Error(err)
			}
			cancel(why)
			return nil
		})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, why) || errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("Do: %v", err)
		}
		if works, _ := d.works(t, "r"); len(works) > 0 || d.mark(t, "r") != 0 {
			t.Errorf("works %v, mark %v", works, d.mark(t, "r"))
		}
	})
}

func TestWaitForAResourceEndsWithTheContext(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		err := g.Do(t.Context(), "r", holdfast.Token(5), func(_ context.Context, _ *sql.Tx) error {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { // joined by the receive
				ended <- g.Do(ctx, "r", holdfast.Token(6), d.write("r", 6, "never"))
			}()
			d.waitForWaiters(t, 1)
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("Do: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if works, _ := d.works(t, "r"); len(works) > 0 || d.mark(t, "r") != 5 {
			t.Errorf("works %v, mark %v", works, d.mark(t, "r"))
		}
	})
}

func TestHolderLostDuringItsWorkDoesNotCommit(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, &sqlfence.Options{Retry: retry()})
		h := &holder{token: 5}
		err := g.Do(t.Context(), "r", h, func(ctx context.Context, tx *sql.Tx) error {
			h.err = &holdfast.LostError{Kind: holdfast.KindLock, Name: "job", Token: 5, Cause: holdfast.CauseExpired}
			return d.write("r", 5, "never")(ctx, tx)
		})
		if !errors.Is(err, holdfast.ErrLost) || !errors.Is(err, fencing.ErrNotDone) ||
			!strings.Contains(err.Error(), "rolled back") {
			t.Errorf("Do: %v", err)
		}
		if works, _ := d.works(t, "r"); len(works) > 0 || d.mark(t, "r") != 0 {
			t.Errorf("works %v, mark %v", works, d.mark(t, "r"))
		}
	})
}

func TestWorkFindsItsHolderInTheContext(t *testing.T) {
	d := newDatabase(t, kinds[0])
	g := d.guard(t, nil)
	h, outer := &holder{token: 5}, &holder{token: 6}
	ctx := fencing.NewContext(t.Context(), outer)
	for source, want := range map[fencing.Source]fencing.Holder{h: h, holdfast.Token(5): outer} {
		err := g.Do(ctx, "r", source, func(ctx context.Context, _ *sql.Tx) error {
			if got, _ := fencing.FromContext(ctx); got != want {
				t.Errorf("%v: found %v", source, got)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestTokenOfAnotherLockIsRefused(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		var records []audit.Record
		keep := audit.Func(func(_ context.Context, r audit.Record) { records = append(records, r) })
		g := d.guard(t, &sqlfence.Options{Auditor: keep})
		// A bare token leaves a mark without a name, which takes that of the next holder.
		for _, s := range []fencing.Source{holdfast.Token(5), &holder{"a", 6, nil}, holdfast.Token(7)} {
			if err := g.Do(t.Context(), "r", s, d.write("r", s.Token(), "")); err != nil {
				t.Fatal(err)
			}
		}
		for _, token := range []holdfast.Token{6, 7, 8} {
			err := g.Do(t.Context(), "r", &holder{"A", token, nil}, neverCalled(t))
			e, ok := errors.AsType[*fencing.OtherNameError](err)
			if !ok || e.Want != "a" || e.Got != "A" || e.Resource != "r" || !errors.Is(err, fencing.ErrOtherName) {
				t.Errorf("token %v: %v", token, err)
			}
		}
		if d.mark(t, "r") != 7 || len(records) != 3 {
			t.Errorf("mark %v, records %+v", d.mark(t, "r"), records)
		}
		if err := g.DoClaim(t.Context(), "r", fencing.Claim{Name: "a", Token: 8}, d.write("r", 8, "")); err != nil {
			t.Error(err)
		}
		err := g.DoClaim(t.Context(), "r", fencing.Claim{Name: "a", Token: 7}, neverCalled(t))
		if !errors.Is(err, fencing.ErrStale) {
			t.Errorf("a stale claim: %v", err)
		}
	})
}

// Without the check each of these would wait for itself.
func TestDoWithinDoIsRefusedIfItWouldWaitForItself(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, &sqlfence.Options{Retry: retry()})
		nothing := func(context.Context, *sql.Tx) error { return nil }
		refused := func(ctx context.Context, resource string) {
			t.Helper()
			err := g.Do(ctx, resource, holdfast.Token(5), neverCalled(t))
			if argument, ok := errors.AsType[*holdfast.ArgumentError](err); !ok || argument.Argument != "ctx" {
				t.Errorf("Do of %s: %v", resource, err)
			}
			effect := func(context.Context) error { return neverCalled(t)(nil, nil) }
			if err := g.Store().Do(ctx, resource, fencing.Claim{Name: "a", Token: 5}, effect); err == nil {
				t.Errorf("Store.Do of %s", resource)
			}
		}
		var inner context.Context
		err := g.Do(deadline(t), "r", holdfast.Token(5), func(ctx context.Context, _ *sql.Tx) error {
			inner = ctx
			refused(ctx, "r")
			if d.dialect == sqlfence.SQLite {
				refused(ctx, "s") // one writer per file
				return nil
			}
			return g.Do(ctx, "s", holdfast.Token(5), func(ctx context.Context, _ *sql.Tx) error {
				refused(ctx, "r")
				refused(ctx, "s")
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
		if err := g.Do(context.WithoutCancel(inner), "r", holdfast.Token(5), nothing); err != nil {
			t.Errorf("after the end of the function: %v", err)
		}
	})
}

// It is that of another resource, which has recorded it.
func TestRefusalWithinTheWorkIsRecordedOnce(t *testing.T) {
	d := newDatabase(t, kinds[0])
	var refused []string
	keep := audit.Func(func(_ context.Context, r audit.Record) { refused = append(refused, r.Resource) })
	g := d.guard(t, &sqlfence.Options{Auditor: keep})
	if err := g.Do(t.Context(), "inner", holdfast.Token(7), d.write("inner", 7, "")); err != nil {
		t.Fatal(err)
	}
	err := g.Do(t.Context(), "outer", holdfast.Token(5), func(ctx context.Context, tx *sql.Tx) error {
		return d.marks(keep).Raise(ctx, sqlfence.SQLTx(tx), "inner", holdfast.Token(5))
	})
	if !errors.Is(err, fencing.ErrStale) || !slices.Equal(refused, []string{"inner"}) || d.mark(t, "outer") != 0 {
		t.Errorf("Do: %v, mark %v, recorded %v", err, d.mark(t, "outer"), refused)
	}
}

func TestFloorIsAddedByTheFirstWriteOnly(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		added := 0
		g := d.guardOver(t, d.pool(t, &lossy{Connector: d.connector,
			exec: func(query string, real func() (driver.Result, error)) (driver.Result, error) {
				if strings.Contains(query, "VALUES ('', '', 1)") {
					added++
				}
				return real()
			}}), nil)
		first := 0
		for range 3 {
			if err := g.Do(t.Context(), "r", holdfast.Token(5), d.write("r", 5, "")); err != nil {
				t.Fatal(err)
			}
			if first == 0 {
				first = added
			}
		}
		if first == 0 || added != first {
			t.Errorf("%d times with the first write, %d with three", first, added)
		}
	})
}
