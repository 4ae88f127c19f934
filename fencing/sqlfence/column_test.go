package sqlfence_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

// result is what a driver says of an UPDATE.
type result struct {
	rows, id int64
	err      error
}

func (r result) RowsAffected() (int64, error) { return r.rows, r.err }
func (r result) LastInsertId() (int64, error) { return r.id, r.err }

func TestColumnTellsAStaleUpdateByItsResult(t *testing.T) {
	cannotCount := errors.New("cannot count")
	for name, c := range map[string]struct {
		dialect sqlfence.Dialect
		token   holdfast.Token
		res     result
		want    error
	}{
		"one row":                       {sqlfence.Postgres, 5, result{rows: 1}, nil},
		"no row":                        {sqlfence.Postgres, 5, result{rows: 0, id: 5}, fencing.ErrStale},
		"MySQL, no row changed":         {sqlfence.MySQL, 5, result{rows: 0, id: 5}, nil},
		"MySQL, no row matched":         {sqlfence.MySQL, 5, result{rows: 0, id: 4}, fencing.ErrStale},
		"no token":                      {sqlfence.Postgres, 0, result{rows: 1}, holdfast.ErrNoToken},
		"a driver that does not count":  {sqlfence.Postgres, 5, result{err: cannotCount}, cannotCount},
		"a driver of MySQL that cannot": {sqlfence.MySQL, 5, result{err: cannotCount}, cannotCount},
	} {
		col, err := sqlfence.NewColumn(c.dialect, "fence")
		if err != nil {
			t.Fatal(err)
		}
		if err := col.Stale(c.res, "account 7", c.token); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		} else if errors.Is(err, fencing.ErrStale) &&
			strings.Contains(err.Error(), "clientFoundRows") != (c.dialect == sqlfence.MySQL) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func ExampleColumn() {
	for _, dialect := range []sqlfence.Dialect{sqlfence.Postgres, sqlfence.MySQL} {
		col, err := sqlfence.NewColumn(dialect, "fence")
		if err != nil {
			panic(err)
		}
		token := map[sqlfence.Dialect]string{sqlfence.Postgres: "$1", sqlfence.MySQL: "?"}[dialect]
		fmt.Println("UPDATE accounts SET balance = 7, " + col.Set(token) + " WHERE id = 1 AND " + col.Where(token))
	}
	// Output:
	// UPDATE accounts SET balance = 7, fence = $1 WHERE id = 1 AND COALESCE(NULLIF(fence, 0), 1) <= $1
	// UPDATE accounts SET balance = 7, fence = LAST_INSERT_ID(?) WHERE id = 1 AND COALESCE(NULLIF(fence, 0), 1) <= ?
}
