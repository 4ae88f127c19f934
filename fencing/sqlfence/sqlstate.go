package sqlfence

import (
	"errors"
	"reflect"
	"strings"
)

// Drivers are recognized by structure, so that this package imports none: those of
// PostgreSQL have a method SQLState, modernc.org/sqlite and go-sql-driver/mysql have
// numbers of their databases. A number means something only in the driver's own error,
// so the package of the error's type is compared. Messages are not parsed.

// sqlState returns the SQLSTATE of an error, "" if it has none.
func sqlState(err error) string {
	var s interface{ SQLState() string }
	if errors.As(err, &s) {
		return s.SQLState()
	}
	return ""
}

// SQLite's primary result codes, the low byte of the extended ones.
const (
	sqliteBusy       = 5
	sqliteLocked     = 6
	sqliteNoMem      = 7
	sqliteInterrupt  = 9
	sqliteIOErr      = 10
	sqliteFull       = 13
	sqliteConstraint = 19
)

// sqliteCode returns SQLite's primary result code, or 0.
func sqliteCode(err error) int {
	if e, ok := ofPackage(err, "modernc.org/sqlite").(interface{ Code() int }); ok {
		return e.Code() & 0xff
	}
	return 0
}

// mysqlNumber returns the error number of MySQL or MariaDB, or 0.
func mysqlNumber(err error) uint64 {
	e := ofPackage(err, "github.com/go-sql-driver/mysql")
	if e == nil {
		return 0
	}
	v := reflect.Indirect(reflect.ValueOf(e))
	if v.Kind() != reflect.Struct {
		return 0
	}
	if number := v.FieldByName("Number"); number.IsValid() && number.CanUint() {
		return number.Uint()
	}
	return 0
}

// ofPackage returns the first error in the tree of err whose type is from a package,
// vendored or not.
func ofPackage(err error, path string) error {
	for err != nil {
		t := reflect.TypeOf(err)
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if p := t.PkgPath(); p == path || strings.HasSuffix(p, "/vendor/"+path) {
			return err
		}
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				if found := ofPackage(e, path); found != nil {
					return found
				}
			}
			return nil
		}
		err = errors.Unwrap(err)
	}
	return nil
}

// gaveUp reports whether the database has given up a transaction for another one. It is
// rolled back entirely, or will be.
func (d Dialect) gaveUp(err error) bool {
	switch sqlState(err) {
	case "40001", "40P01":
		return true
	}
	switch d {
	case SQLite:
		code := sqliteCode(err)
		return code == sqliteBusy || code == sqliteLocked
	case MySQL:
		switch mysqlNumber(err) {
		case 1213, // deadlock; in Galera also a conflict with another node
			1205, // lock wait timeout
			1020, // MariaDB with innodb_snapshot_isolation: the row changed after the snapshot
			3101: // MySQL Group Replication: a conflict with another node
			return true
		}
	case Postgres:
	}
	return false
}

// endsTx reports whether the database may have ended the transaction with err, the error of a
// statement. PostgreSQL never does: the transaction is failed, and stays.
func (d Dialect) endsTx(err error) bool {
	switch d {
	case MySQL:
		return d.gaveUp(err)
	case SQLite:
		switch sqliteCode(err) {
		case sqliteNoMem, sqliteInterrupt, sqliteIOErr, sqliteFull,
			sqliteConstraint: // ON CONFLICT ROLLBACK, RAISE(ROLLBACK)
			return true
		}
	case Postgres:
	}
	return false
}

// transient reports whether the whole transaction may be repeated.
func (g *Guard) transient(err error) bool {
	return err != nil && (g.m.dialect.gaveUp(err) || g.opts.Transient != nil && g.opts.Transient(err))
}

// refusedCommit reports whether the error of a commit proves that nothing was
// committed.
func (d Dialect) refusedCommit(err error) bool {
	if d == SQLite {
		code := sqliteCode(err)
		return code == sqliteFull || code == sqliteConstraint
	}
	state := sqlState(err)
	if d != Postgres || len(state) != 5 {
		return false
	}
	switch state[:2] {
	case "22", "23", "25", "42", "44", "P0":
		// A deferred constraint or trigger failed, and the transaction with it.
		return true
	case "40":
		return state != "40003" // statement completion unknown
	}
	// Others can come after the commit, such as 57P01 from a server that is shut down
	// while the commit waits for its standby.
	return false
}
