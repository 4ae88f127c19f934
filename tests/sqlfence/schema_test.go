package sqlfence_test

import (
	"database/sql"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

func TestSchemaIsMadeOnceByAllAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g, err := sqlfence.New(d.db, d.dialect, &sqlfence.Options{Table: "Order", Auditor: unheard}) // a word that must be quoted
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range writers {
			all.Go(func() {
				if err := g.EnsureSchema(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if err := g.Do(t.Context(), "r", fencing.Token(5), d.write("r", 5, "")); err != nil {
			t.Error(err)
		}
		if err := g.EnsureSchema(t.Context()); err != nil {
			t.Error(err)
		}
		if err := g.Do(t.Context(), "r", fencing.Token(4), neverCalled(t)); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("after EnsureSchema: %v", err)
		}
	})
}

func TestMigrationsAreTheSchema(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		files := sqlfence.Migrations(d.dialect)
		migrate := func(name string) {
			t.Helper()
			ddl, err := fs.ReadFile(files, name)
			if err != nil {
				t.Fatal(err)
			}
			d.exec(t, string(ddl))
		}
		all := func(pattern string) []string {
			names, err := fs.Glob(files, pattern)
			if err != nil {
				t.Fatal(err)
			}
			return names
		}
		for _, name := range all("*.up.sql") {
			migrate(name)
		}
		g, err := sqlfence.New(d.db, d.dialect, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Do(t.Context(), strings.Repeat("r", fencing.MaxResource), fencing.Token(5), d.write("r", 5, "")); err != nil {
			t.Error(err)
		}
		down := all("*.down.sql")
		slices.Reverse(down)
		for _, name := range down {
			migrate(name)
		}
		if err := g.Do(t.Context(), "r", fencing.Token(5), neverCalled(t)); err == nil {
			t.Error("the table is still there")
		}
	})
	if found, _ := fs.Glob(sqlfence.Migrations(0), "*"); len(found) > 0 {
		t.Errorf("an unknown dialect has files: %v", found)
	}
}

func TestSchemaThatCannotBeMadeIsAnError(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		g, err := sqlfence.New(d.db, d.dialect, &sqlfence.Options{Table: "nowhere.fence"})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.EnsureSchema(t.Context()); err == nil || !strings.Contains(err.Error(), "nowhere") {
			t.Errorf("EnsureSchema: %v", err)
		}
	})
}

func TestNamesThatCannotBeResourcesAreRefusedWithoutAQuery(t *testing.T) {
	g := closed(t)
	for _, name := range []string{"", "a\x00b", "\xff", "a\xc3", strings.Repeat("a", fencing.MaxResource+1)} {
		err := g.Do(t.Context(), name, fencing.Token(5), neverCalled(t))
		if e, ok := errors.AsType[*holdfast.NameError](err); !ok || e.Name != name {
			t.Errorf("%q: %v", name, err)
		}
		if err.Error() != sqlfence.checkResource(name).Error() || len(err.Error()) > 800 {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := sqlfence.checkResource(strings.Repeat("a", fencing.MaxResource)); err != nil {
		t.Error(err)
	}
}

func TestTableNameThatIsNoneIsRefused(t *testing.T) {
	db := newDatabase(t, kinds[0]).db
	long := strings.Repeat("t", 63)
	for _, name := range []string{"t", "T1", "_t", "s.t", long, long + "." + long} {
		if _, err := sqlfence.New(db, sqlfence.Postgres, &sqlfence.Options{Table: name}); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{
		" ", "1t", "t-1", "t t", "t;", "t--", `t"`, `"t"`, "`t`", "t'", "a.b.c", ".t", "t.", "t\n", "t\x00", "tä", "t)", "$1", "?", long + "t",
	} {
		if _, err := sqlfence.New(db, sqlfence.Postgres, &sqlfence.Options{Table: name}); !isArgument(err, "Options.Table") {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := sqlfence.NewColumn(sqlfence.Postgres, name); !isArgument(err, "name") {
			t.Errorf("column %q: %v", name, err)
		}
	}
}

func TestOptionsThatCannotBeUsedAreRefused(t *testing.T) {
	db := newDatabase(t, kinds[0]).db
	for argument, o := range map[string]struct {
		db      *sql.DB
		dialect sqlfence.Dialect
		opts    *sqlfence.Options
	}{
		"db":                {nil, sqlfence.SQLite, nil},
		"dialect":           {db, 0, nil},
		"Options.Isolation": {db, sqlfence.SQLite, &sqlfence.Options{Isolation: sql.LevelLinearizable}},
	} {
		if _, err := sqlfence.New(o.db, o.dialect, o.opts); !isArgument(err, argument) {
			t.Errorf("%s: %v", argument, err)
		}
	}
	if _, err := sqlfence.NewColumn(4, "fence"); !isArgument(err, "dialect") {
		t.Errorf("NewColumn: %v", err)
	}
	_, err := sqlfence.New(db, sqlfence.SQLite, &sqlfence.Options{Retry: &backoff.Policy{Max: -1}})
	if _, ok := errors.AsType[*holdfast.ArgumentError](err); !ok {
		t.Errorf("New: %v", err)
	}
}
