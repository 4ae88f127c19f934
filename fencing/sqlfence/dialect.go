package sqlfence

import (
	"fmt"
	"strings"
)

// Dialect is the kind of database behind a *sql.DB. The driver does not matter.
type Dialect int

// The dialects.
const (
	// Postgres is PostgreSQL 9.5 or newer.
	Postgres Dialect = iota + 1

	// MySQL is MySQL 5.7 or newer, and MariaDB 10.2 or newer, with InnoDB
	// tables. Whether the driver reports matched or changed rows
	// (clientFoundRows) makes no difference.
	MySQL

	// SQLite is SQLite 3.35 or newer. It has one writer per file: writers of
	// different resources wait for each other there, as all writers do. Set a
	// busy timeout in the DSN, or they fail instead of waiting.
	SQLite
)

// String returns the name of the dialect's directory in [Migrations].
func (d Dialect) String() string {
	switch d {
	case Postgres:
		return "postgres"
	case MySQL:
		return "mysql"
	case SQLite:
		return "sqlite"
	}
	return fmt.Sprintf("Dialect(%d)", int(d))
}

// statements are what a guard says to its database.
type statements struct {
	// raise inserts or raises the mark of a resource and locks its row, in the
	// first statement of the transaction. It must be the first:
	//
	//   - SQLite's transactions begin deferred. One that reads and then writes
	//     fails with SQLITE_BUSY, timeout or not, if somebody wrote in between;
	//     one that begins with a write waits for its turn.
	//   - InnoDB's snapshot is taken by the first plain SELECT. Taken after the
	//     lock it shows fn what the previous holder wrote.
	//
	// And it must be an insert that turns into an update. An update first would
	// find no row for a new resource; in InnoDB that locks the gap where the row
	// would be, and with it the resources that sort there.
	raise string

	// read reads the mark back where raise cannot return it. FOR UPDATE reads
	// what is locked, whatever snapshot the transaction may have.
	read string

	// begin and end enclose fn. If its transaction has ended unnoticed, end
	// fails, for the savepoint has gone with it. Without, MySQL's COMMIT would
	// succeed, with nothing to commit: after a deadlock, whose error fn has not
	// returned, or a statement that commits by itself (ALTER TABLE), the rest
	// of fn has been running outside of any transaction. SQLite is alike; a
	// transaction of PostgreSQL that has failed stays failed.
	begin, end string
}

const (
	savepoint        = "SAVEPOINT holdfast_guard"
	releaseSavepoint = "RELEASE SAVEPOINT holdfast_guard"
)

// statements returns the statements for a table, whose name is quoted.
func (d Dialect) statements(table string) statements {
	switch d {
	case MySQL:
		// The count of affected rows does not tell a token that equals the mark
		// from one below it: the row stays as it is either way. So the mark is
		// read back and compared here. The values are given twice, because
		// VALUES() is deprecated in MySQL and what replaces it is unknown to
		// MariaDB.
		return statements{
			raise: "INSERT INTO " + table + " (resource, lock_name, token) VALUES (?, ?, ?) " +
				"ON DUPLICATE KEY UPDATE lock_name = IF(lock_name = '', ?, lock_name), token = GREATEST(token, ?)",
			read:  "SELECT lock_name, token FROM " + table + " WHERE resource = ? FOR UPDATE",
			begin: savepoint, end: releaseSavepoint,
		}
	case SQLite:
		return statements{
			raise: "INSERT INTO " + table + " AS f (resource, lock_name, token) VALUES (?, ?, ?) " +
				"ON CONFLICT (resource) DO UPDATE SET " +
				"lock_name = CASE f.lock_name WHEN '' THEN excluded.lock_name ELSE f.lock_name END, " +
				"token = max(f.token, excluded.token) " +
				"RETURNING lock_name, token",
			begin: savepoint, end: releaseSavepoint,
		}
	default:
		return statements{
			raise: "INSERT INTO " + table + " AS f (resource, lock_name, token) VALUES ($1, $2, $3) " +
				"ON CONFLICT (resource) DO UPDATE SET " +
				"lock_name = CASE f.lock_name WHEN '' THEN excluded.lock_name ELSE f.lock_name END, " +
				"token = GREATEST(f.token, excluded.token) " +
				"RETURNING lock_name, token",
		}
	}
}

// quoteTable quotes a name that checkTable has passed.
func (d Dialect) quoteTable(table string) string {
	mark := `"`
	if d == MySQL {
		mark = "`"
	}
	return mark + strings.ReplaceAll(table, ".", mark+"."+mark) + mark
}
