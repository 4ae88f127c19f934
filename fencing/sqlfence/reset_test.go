package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

func TestResetThatCannotReadTheMarkFails(t *testing.T) {
	broken := errors.New("broken")
	db := sql.OpenDB(&failing{errs: []error{broken}})
	defer db.Close()
	g, err := sqlfence.New(db, sqlfence.Postgres, sqlfence.Options{})
	if err != nil {
		t.Fatal(err)
	}
	none := audit.Func(func(_ context.Context, r audit.Record) { t.Errorf("record %+v", r) })
	if err := g.Reset(t.Context(), "r", none); !errors.Is(err, broken) {
		t.Errorf("Reset: %v", err)
	}
}
