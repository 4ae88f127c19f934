package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

func TestReplicasEnsureTheSchemaAtTheSameTime(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		// A table whose name must be quoted.
		g, err := sqlfence.New(d.db, d.dialect, sqlfence.Options{Table: "Order", Auditor: quiet})
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
		if err := g.Do(t.Context(), "r", holdfast.Token(5), d.write("r", 5, "")); err != nil {
			t.Error(err)
		}
		if err := g.EnsureSchema(t.Context()); err != nil {
			t.Error(err)
		}
		if err := g.Do(t.Context(), "r", holdfast.Token(4), neverCalled(t)); !errors.Is(err, fencing.ErrStale) {
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
		g, err := sqlfence.New(d.db, d.dialect, sqlfence.Options{})
		if err != nil {
			t.Fatal(err)
		}
		longest := strings.Repeat("r", fencing.MaxResource)
		if err := g.Do(t.Context(), longest, holdfast.Token(5), d.write("r", 5, "")); err != nil {
			t.Error(err)
		}
		down := all("*.down.sql")
		slices.Reverse(down)
		for _, name := range down {
			migrate(name)
		}
		if err := g.Do(t.Context(), "r", holdfast.Token(5), neverCalled(t)); err == nil {
			t.Error("the table still exists")
		}
	})
}

func TestSchemaThatCannotBeCreatedIsAnError(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		g, err := sqlfence.New(d.db, d.dialect, sqlfence.Options{Table: "nowhere.fence"})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.EnsureSchema(t.Context()); err == nil || !strings.Contains(err.Error(), "nowhere") {
			t.Errorf("EnsureSchema: %v", err)
		}
	})
}

func TestTableOfAnOlderVersionIsNamedBeforeAnyEffectAndUpdated(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		first, err := fs.ReadFile(sqlfence.Migrations(d.dialect), "0001_holdfast_fence.up.sql")
		if err != nil {
			t.Fatal(err)
		}
		d.exec(t, string(first))
		const insert = "INSERT INTO holdfast_fence (resource, lock_name, token) VALUES (?, ?, 7)"
		d.exec(t, insert, d.resource("r"), d.resource(""))
		g, err := sqlfence.New(d.db, d.dialect, sqlfence.Options{Auditor: quiet})
		if err != nil {
			t.Fatal(err)
		}
		err = g.Do(t.Context(), "r", holdfast.Token(8), neverCalled(t))
		if _, ok := errors.AsType[*sqlfence.SchemaError](err); !ok || !strings.Contains(err.Error(), "ALTER TABLE") ||
			!strings.Contains(err.Error(), "EnsureSchema") {
			t.Errorf("Do: %v", err)
		}
		t.Log(err)
		if d.mark(t, "r") != 7 {
			t.Errorf("mark %v", d.mark(t, "r"))
		}
		if err := g.EnsureSchema(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := g.Do(t.Context(), "r", holdfast.Token(6), neverCalled(t)); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("after EnsureSchema: %v", err)
		}
		// A guard of the older version can still write to the table.
		d.exec(t, insert, d.resource("s"), d.resource(""))
		if err := g.Do(t.Context(), "s", holdfast.Token(8), d.write("s", 8, "")); err != nil {
			t.Error(err)
		}
	})
}

// With autocommit off, a session keeps each statement uncommitted, and a snapshot for ever.
func TestSchemaAndResetAreCommittedWithoutAutocommit(t *testing.T) {
	d := newDatabase(t, kinds[2])
	db := d.pool(t, mariadb.connectorWith(t, d.id, map[string]string{"autocommit": "0"}))
	g, err := sqlfence.New(db, d.dialect, sqlfence.Options{Auditor: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.EnsureSchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := d.number(t, "SELECT COUNT(*) FROM holdfast_fence"); n != 0 {
		t.Errorf("%d rows in a new table", n)
	}
	ctx := deadline(t)
	for token := holdfast.Token(9); token > 5; token-- {
		if err := g.Do(ctx, "r", token, func(context.Context, *sql.Tx) error { return nil }); err != nil {
			t.Errorf("token %v: %v", token, err)
		}
		if d.mark(t, "r") != token {
			t.Errorf("mark %v, want %v", d.mark(t, "r"), token)
		}
		if err := g.Reset(ctx, "r", quiet); err != nil {
			t.Fatal(err)
		}
		if d.mark(t, "r") != 0 {
			t.Errorf("mark %v after Reset", d.mark(t, "r"))
		}
	}
}
