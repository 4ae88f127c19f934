package sqlfence

import "errors"

// What the errors of drivers have in common is little: those of PostgreSQL's
// give the SQLSTATE, that of modernc.org/sqlite the code of SQLite. Their text
// is for people, and is not looked at.
type (
	stater interface{ SQLState() string }
	coder  interface{ Code() int }
)

// SQLite's primary result codes, the low byte of the extended ones.
const (
	sqliteBusy       = 5
	sqliteLocked     = 6
	sqliteFull       = 13
	sqliteConstraint = 19
)

// transient reports whether the database has given up a transaction for the sake
// of another. All of it is rolled back, or will be, as nothing commits it.
func (g *Guard) transient(err error) bool {
	if err == nil {
		return false
	}
	var s stater
	if errors.As(err, &s) && (s.SQLState() == "40001" || s.SQLState() == "40P01") {
		return true
	}
	if code := g.dialect.code(err); code == sqliteBusy || code == sqliteLocked {
		return true
	}
	return g.opts.Transient != nil && g.opts.Transient(err)
}

// refused reports whether err, which a commit returned, proves that nothing was
// committed.
func (d Dialect) refused(err error) bool {
	if code := d.code(err); code == sqliteFull || code == sqliteConstraint {
		return true
	}
	var s stater
	if d != Postgres || !errors.As(err, &s) || len(s.SQLState()) != 5 {
		return false
	}
	switch state := s.SQLState(); state[:2] {
	case "22", "23", "25", "42", "44", "P0":
		// A constraint or trigger that was deferred to the commit: the statement
		// was refused, and the transaction with it.
		return true
	case "40":
		return state != "40003" // statement completion unknown
	}
	// Of the others some can come after the commit: 57P01, a server that is shut
	// down while the commit waits for its standby.
	return false
}

// code returns SQLite's primary result code, 0 if there is none.
func (d Dialect) code(err error) int {
	var c coder
	if d != SQLite || !errors.As(err, &c) {
		return 0
	}
	return c.Code() & 0xff
}
