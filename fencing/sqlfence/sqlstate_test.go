package sqlfence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

// failing is a database whose connections fail with these errors, in order, and then
// with an error that is not repeated.
type failing struct {
	errs     []error
	connects int
}

func (f *failing) Driver() driver.Driver { return nil }

func (f *failing) Connect(context.Context) (driver.Conn, error) {
	f.connects++
	if f.connects > len(f.errs) {
		return nil, errors.New("the end")
	}
	return nil, f.errs[f.connects-1]
}

// state is an error with a SQLSTATE, as drivers of PostgreSQL have it.
type state string

func (s state) Error() string    { return "state " + string(s) }
func (s state) SQLState() string { return string(s) }

// coded is an error of the program with a number that SQLite uses as well.
type coded int

func (coded) Error() string { return "of the program" }
func (c coded) Code() int   { return int(c) }

func TestErrorsOfDriversAreRecognizedWithoutTheDrivers(t *testing.T) {
	for name, c := range map[string]struct {
		dialect  sqlfence.Dialect
		err      error
		connects int
	}{
		"serialization failure": {sqlfence.Postgres, state("40001"), 2},
		"deadlock":              {sqlfence.Postgres, state("40P01"), 2},
		"another state":         {sqlfence.Postgres, state("42601"), 1},
		"program's own number":  {sqlfence.SQLite, coded(5), 1},
		"no number":             {sqlfence.MySQL, errors.New("Error 1213"), 1},
	} {
		f := &failing{errs: []error{errors.New("the floor is not added"), c.err}}
		db := sql.OpenDB(f)
		retry := &backoff.Policy{Initial: time.Millisecond, Max: time.Millisecond}
		g, err := sqlfence.New(db, c.dialect, sqlfence.Options{Retry: retry})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Do(t.Context(), "r", holdfast.Token(5), neverCalled(t)); !errors.Is(err, fencing.ErrNotDone) {
			t.Errorf("%s: %v", name, err)
		}
		if n := f.connects / 2; n != c.connects {
			t.Errorf("%s: %d attempts, want %d", name, n, c.connects)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
