package sqlfence_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

func TestInvalidResourceIsRefusedWithoutAQuery(t *testing.T) {
	g := unreachableGuard(t)
	for _, name := range []string{"", "a\x00b", "\xff", "a\xc3", strings.Repeat("a", fencing.MaxResource+1)} {
		for _, err := range []error{
			g.Do(t.Context(), name, holdfast.Token(5), neverCalled(t)),
			g.Reset(t.Context(), name, nil),
		} {
			var e *holdfast.NameError
			if !errors.As(err, &e) || e.Kind != "resource" || e.Name != name || !errors.Is(err, fencing.ErrBadClaim) {
				t.Errorf("%.20q: %v", name, err)
			} else if len(err.Error()) > 800 {
				t.Errorf("%.20q: the error has %d bytes", name, len(err.Error()))
			}
		}
	}
	// The longest one is sent to the database, which fails.
	db := sql.OpenDB(&failing{})
	defer db.Close()
	g, err := sqlfence.New(db, sqlfence.Postgres, sqlfence.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = g.Do(t.Context(), strings.Repeat("a", fencing.MaxResource), holdfast.Token(5), neverCalled(t))
	if err == nil || errors.Is(err, fencing.ErrBadClaim) {
		t.Errorf("the longest name: %v", err)
	}
}

func TestInvalidTableIsRefused(t *testing.T) {
	db := unreachableDB(t)
	long := strings.Repeat("t", 63)
	for _, name := range []string{"t", "T1", "_t", "s.t", long, long + "." + long} {
		if _, err := sqlfence.New(db, sqlfence.Postgres, sqlfence.Options{Table: name}); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{
		" ", "1t", "t-1", "t t", "t;", "t--", `t"`, `"t"`, "`t`", "t'", "a.b.c", ".t", "t.", "t\n", "t\x00", "tä",
		"t)", "$1", "?", long + "t",
	} {
		_, err := sqlfence.New(db, sqlfence.Postgres, sqlfence.Options{Table: name})
		if !isArgument(err, "Options.Table") {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := sqlfence.NewColumn(sqlfence.Postgres, name); !isArgument(err, "name") {
			t.Errorf("column %q: %v", name, err)
		}
	}
}
