package sqlfence

import (
	"errors"
	"fmt"
	"testing"
)

type stateError string

func (s stateError) Error() string    { return "state " + string(s) }
func (s stateError) SQLState() string { return string(s) }

type pointerError struct{}

func (*pointerError) Error() string { return "by pointer" }

// What is taken for refused is repeated: an error that may come after the commit must not be.
func TestCommitIsTakenForRefusedOnlyIfItsErrorProvesThat(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]bool{
		"22000": true, "23505": true, "25P02": true, "42601": true, "44000": true, "P0001": true,
		"40001": true, "40P01": true,
		"40003": false, // statement completion unknown
		"57P01": false, "08006": false, "00000": false, "": false, "23": false, "235051": false,
	} {
		err := fmt.Errorf("commit: %w", stateError(state))
		if Postgres.refusedCommit(err) != want || MySQL.refusedCommit(err) || SQLite.refusedCommit(err) {
			t.Errorf("%q: PostgreSQL %v, want %v; MySQL %v, SQLite %v", state,
				Postgres.refusedCommit(err), want, MySQL.refusedCommit(err), SQLite.refusedCommit(err))
		}
		if Postgres.endsTx(err) {
			t.Errorf("%q: PostgreSQL is said to end a transaction", state)
		}
	}
}

func TestErrorIsFoundByThePackageOfItsType(t *testing.T) {
	t.Parallel()
	const here = "github.com/holdfast-go/holdfast/fencing/sqlfence"
	value, pointer := stateError("x"), &pointerError{}
	for name, c := range map[string]struct{ err, want error }{
		"value":           {value, value},
		"pointer":         {pointer, pointer},
		"wrapped":         {fmt.Errorf("exec: %w", pointer), pointer},
		"second of two":   {errors.Join(errors.New("other"), fmt.Errorf("exec: %w", value)), value},
		"of none":         {errors.Join(errors.New("other")), nil},
		"nothing at all":  {nil, nil},
		"of the standard": {errors.New("other"), nil},
	} {
		if got := ofPackage(c.err, here); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if got := ofPackage(c.err, "holdfast/fencing/sqlfence"); got != nil {
			t.Errorf("%s: %v is found by the end of its package", name, got)
		}
	}
}

// The function of the user's is asked about errors only.
func TestSuccessIsNotRepeated(t *testing.T) {
	t.Parallel()
	g := &Guard{m: Marks{dialect: Postgres}, opts: Options{Transient: func(error) bool { return true }}}
	if g.transient(nil) || !g.transient(errors.New("of a proxy")) {
		t.Errorf("nil is transient: %v, an error: %v", g.transient(nil), g.transient(errors.New("of a proxy")))
	}
}
