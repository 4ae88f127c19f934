package sqlfence

import (
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast"
)

// Dialect is the kind of database. Any driver will do.
type Dialect int

// The dialects.
const (
	// Postgres is PostgreSQL 10 or newer.
	Postgres Dialect = iota + 1

	// MySQL is MySQL 5.7 or newer and MariaDB 10.2 or newer, with InnoDB tables.
	// The driver may report matched or changed rows (clientFoundRows).
	MySQL

	// SQLite is SQLite 3.35 or newer. Set a busy timeout in the DSN: without it writers fail instead
	// of waiting.
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

func (d Dialect) check() error {
	if d < Postgres || d > SQLite {
		return &holdfast.ArgumentError{Argument: "dialect", Reason: "is " + d.String() + ", not one of its constants"}
	}
	return nil
}

// statements are the SQL of a guard for one table.
type statements struct {
	// raise inserts or raises the mark of a resource and locks its row. It comes
	// before any read:
	//
	//   - SQLite's transactions begin deferred. One that reads and then writes fails
	//     with SQLITE_BUSY, in spite of a timeout, if another one wrote in between;
	//     one that begins with a write waits.
	//   - InnoDB takes its snapshot at the first plain SELECT. Taken after the row was
	//     locked, it shows what the previous holder wrote.
	//
	// It is an insert that becomes an update. An update would find no row for a new
	// resource; InnoDB then locks the gap around it, and neighboring resources with it.
	//
	// It leaves name and token unchanged if the claim may not pass the mark;
	// fencing.Claim.CheckMark then says why. raises grows with each call, also for the
	// same token: Galera detects a conflict of two nodes only in rows that both change.
	raise statement

	// mark reads the mark where raise cannot return it. FOR UPDATE reads the locked
	// row, whatever snapshot the transaction has.
	mark statement

	// floor reads the floor (see Guard.Expire) for a resource that had no row: the
	// committed value, not that of a snapshot. addFloor comes before it. If there is no
	// floor, it adds one that refuses no token: what does not exist cannot be locked, so
	// the first floor of a table could be missed. A new table has none, because it would
	// collide with the one in a dump.
	addFloor, floor string

	// raiseFloor raises the floor to a token, if it is below it or there is none.
	raiseFloor statement

	// lift raises a mark that is below the floor to the floor.
	lift statement

	// savepoint and release enclose raise and fn in MySQL and SQLite. release fails if
	// the transaction has ended unnoticed, because the savepoint is gone with it.
	// Otherwise MySQL's COMMIT would succeed:
	//
	//   - After a deadlock whose error fn ignored, or a statement that commits
	//     implicitly (ALTER TABLE), the rest of fn ran outside any transaction.
	//   - With prepared statements, a MariaDB Galera node can give up a transaction for
	//     that of another node without an error. A new transaction follows. So the
	//     savepoint comes before the raise.
	//
	// Its name cannot be guessed: a rollback to it in fn would undo the raise unnoticed.
	savepoint, release string

	// id returns the transaction's id, in PostgreSQL. raise returns it too. After a
	// COMMIT in fn it is another one. status tells what has become of it.
	id, status string
}

// argument is a value that a statement needs.
type argument int

const (
	argResource argument = iota
	argName
	argFirst // the token for a resource that has no mark
	argLow   // below it, a mark is too many epochs behind the token
	argToken
)

// arguments holds the values, indexed by argument.
type arguments [argToken + 1]any

// statement is a query and the arguments of its placeholders.
type statement struct {
	query string
	args  []argument
}

func (s *statement) bind(values *arguments) []any {
	bound := make([]any, len(s.args))
	for i, a := range s.args {
		bound[i] = values[a]
	}
	return bound
}

var argumentNames = map[string]argument{
	"resource": argResource, "name": argName, "first": argFirst, "low": argLow, "token": argToken,
}

// statement replaces {resource}, {name}, … by the dialect's placeholders.
func (d Dialect) statement(query string) statement {
	var s statement
	var text strings.Builder
	for {
		before, rest, found := strings.Cut(query, "{")
		text.WriteString(before)
		if !found {
			s.query = text.String()
			return s
		}
		name, after, _ := strings.Cut(rest, "}")
		s.args = append(s.args, argumentNames[name])
		if query = after; d != Postgres {
			text.WriteByte('?')
		} else {
			fmt.Fprintf(&text, "$%d", len(s.args))
		}
	}
}

// now returns the SQL for the database's time, in seconds since 1970.
func (d Dialect) now() string {
	switch d {
	case Postgres:
		return "CAST(EXTRACT(EPOCH FROM now()) AS bigint)"
	case MySQL:
		return "UNIX_TIMESTAMP()"
	case SQLite:
	}
	return "CAST(strftime('%s', 'now') AS INTEGER)"
}

const (
	neutralFloor = "(resource, lock_name, token) VALUES ('', '', 1)"
	newFloor     = "(resource, lock_name, token) VALUES ('', '', {token}) "
)

// statements returns the statements for a table, given by its quoted name.
func (d Dialect) statements(table string) statements {
	savepoint := "holdfast_" + rand.Text()[:10]
	s := statements{
		savepoint: "SAVEPOINT " + savepoint,
		release:   "RELEASE SAVEPOINT " + savepoint,
		addFloor:  "INSERT INTO " + table + " " + neutralFloor + " ON CONFLICT DO NOTHING",
		floor:     "SELECT token FROM " + table + " WHERE resource = ''",
		lift:      d.statement("UPDATE " + table + " SET token = {token} WHERE resource = {resource} AND token < {token}"),
	}
	insert := "(resource, lock_name, token, raises, raised_at) " +
		"VALUES ({resource}, {name}, {first}, 1, " + d.now() + ") "
	if d == MySQL {
		s.addFloor = "INSERT IGNORE INTO " + table + " " + neutralFloor
		s.raiseFloor = d.statement("INSERT INTO " + table + " " + newFloor + "ON DUPLICATE KEY UPDATE " +
			"token = GREATEST(token, {token}), raises = raises + 1")
		// The number of affected rows does not tell whether the mark was raised, so it
		// is read back. VALUES() is deprecated in MySQL, and MariaDB does not know its
		// replacement, so values are passed again where they are needed. Assignments
		// take effect from left to right.
		s.raise = d.statement("INSERT INTO " + table + " " + insert + "ON DUPLICATE KEY UPDATE " +
			"lock_name = IF(lock_name = '' AND token BETWEEN {low} AND {token}, {name}, lock_name), " +
			"token = IF(token BETWEEN {low} AND {token} " +
			"AND ({name} = '' OR lock_name = '' OR lock_name = {name}), {token}, token), " +
			"raises = raises + 1, raised_at = " + d.now())
		s.mark = d.statement("SELECT lock_name, token, raises, 0 FROM " + table + " WHERE resource = {resource} FOR UPDATE")
		s.floor += " LOCK IN SHARE MODE"
		return s
	}
	id := "0"
	if d == Postgres {
		s.savepoint, s.release = "", ""
		id = "txid_current()"
		s.id, s.status = "SELECT "+id, "SELECT txid_status($1)"
		s.floor += " FOR SHARE"
	}
	s.raiseFloor = d.statement("INSERT INTO " + table + " AS f " + newFloor + "ON CONFLICT (resource) DO UPDATE SET " +
		"token = CASE WHEN f.token < {token} THEN {token} ELSE f.token END, raises = f.raises + 1")
	// excluded is the row of the INSERT.
	s.raise = d.statement("INSERT INTO " + table + " AS f " + insert + "ON CONFLICT (resource) DO UPDATE SET " +
		"lock_name = CASE WHEN f.lock_name = '' AND f.token BETWEEN {low} AND {token} " +
		"THEN excluded.lock_name ELSE f.lock_name END, " +
		"token = CASE WHEN f.token BETWEEN {low} AND {token} " +
		"AND (excluded.lock_name = '' OR f.lock_name IN ('', excluded.lock_name)) " +
		"THEN {token} ELSE f.token END, " +
		"raises = f.raises + 1, raised_at = excluded.raised_at " +
		"RETURNING lock_name, token, raises, " + id)
	return s
}

// quoteTable quotes a name that matches tableName.
func (d Dialect) quoteTable(table string) string {
	mark := `"`
	if d == MySQL {
		mark = "`"
	}
	return mark + strings.ReplaceAll(table, ".", mark+"."+mark) + mark
}
