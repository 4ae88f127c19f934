package sqlfence_test

import (
	"database/sql"
	"testing"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

func TestInvalidOptionsAreRefused(t *testing.T) {
	db := unreachableDB(t)
	for argument, o := range map[string]struct {
		db      *sql.DB
		dialect sqlfence.Dialect
		opts    sqlfence.Options
	}{
		"db":                {nil, sqlfence.SQLite, sqlfence.Options{}},
		"dialect":           {db, 0, sqlfence.Options{}},
		"Options.Isolation": {db, sqlfence.SQLite, sqlfence.Options{Isolation: sql.LevelLinearizable}},
		"Policy.Max":        {db, sqlfence.SQLite, sqlfence.Options{Retry: &backoff.Policy{Max: -1}}},
	} {
		if _, err := sqlfence.New(o.db, o.dialect, o.opts); !isArgument(err, argument) {
			t.Errorf("%s: %v", argument, err)
		}
	}
	if _, err := sqlfence.NewColumn(4, "fence"); !isArgument(err, "dialect") {
		t.Errorf("NewColumn: %v", err)
	}
}

func TestMarksRefuseOptionsOfTransactions(t *testing.T) {
	for _, opts := range []sqlfence.Options{
		{Retry: &backoff.Policy{}},
		{Isolation: sql.LevelSerializable},
		{Transient: func(error) bool { return true }},
	} {
		if _, err := sqlfence.NewMarks(sqlfence.Postgres, opts); !isArgument(err, "Options") {
			t.Errorf("%+v: %v", opts, err)
		}
	}
}
