package sqlfence_test

import (
	"database/sql"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

func TestMigrationsComeInPairs(t *testing.T) {
	for _, d := range []sqlfence.Dialect{sqlfence.Postgres, sqlfence.MySQL, sqlfence.SQLite} {
		up, err := fs.Glob(sqlfence.Migrations(d), "*.up.sql")
		if err != nil || len(up) == 0 {
			t.Fatalf("%v: %v, %v", d, up, err)
		}
		for _, name := range up {
			down := strings.TrimSuffix(name, ".up.sql") + ".down.sql"
			for _, file := range []string{name, down} {
				text, err := fs.ReadFile(sqlfence.Migrations(d), file)
				if err != nil || !strings.Contains(string(text), sqlfence.DefaultTable) {
					t.Errorf("%v: %s says nothing about the table: %v", d, file, err)
				}
			}
		}
	}
	if found, _ := fs.Glob(sqlfence.Migrations(0), "*"); len(found) > 0 {
		t.Errorf("an unknown dialect has files: %v", found)
	}
}

func TestSchemaErrorGivesEachStatementOnOneLine(t *testing.T) {
	err := &sqlfence.SchemaError{Table: `"f"`, Statements: []string{"-- why\n\nALTER TABLE f\n\n  ADD a int;\n", "X;"}}
	if text := err.Error(); !strings.HasSuffix(text, " or run ALTER TABLE f ADD a int; X;") {
		t.Errorf("error %q", text)
	}
}

// The first failure is the cause, if anything: the rest may follow from it.
func TestSchemaThatCannotBeMadeIsToldWithTheFirstFailure(t *testing.T) {
	first := errors.New("first")
	db := sql.OpenDB(&failing{errs: []error{errors.New("no table"), first, errors.New("second")}})
	defer db.Close()
	g, err := sqlfence.New(db, sqlfence.Postgres, sqlfence.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.EnsureSchema(t.Context()); !errors.Is(err, first) {
		t.Errorf("EnsureSchema: %v", err)
	}
}
