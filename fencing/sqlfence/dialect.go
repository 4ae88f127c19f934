package sqlfence

import (
	"fmt"
	"strings"
)

// Dialect is the kind of database behind a *sql.DB. The driver does not matter.
type Dialect int

// The dialects.
const (
	// Postgres is PostgreSQL 9.6 or newer.
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

// statements are what is said to the database.
type statements struct {
	// raise inserts or raises the mark of a resource and locks its row, before
	// anything is read. It must come first:
	//
	//   - SQLite's transactions begin deferred. One that reads and then writes
	//     fails with SQLITE_BUSY, timeout or not, if another wrote in between;
	//     one that begins with a write waits for its turn.
	//   - InnoDB's snapshot is taken by the first plain SELECT. Taken after the
	//     lock it shows fn what the previous holder wrote.
	//
	// And it must be an insert that turns into an update. An update first would
	// find no row for a new resource; in InnoDB that locks the gap where the row
	// would be, and with it the resources that sort there.
	//
	// It leaves the name and token of a mark that the claim may not pass as they
	// are; fencing.Claim.CheckMark then says why. raises grows with each raise,
	// also by the same token: Galera compares the rows that two nodes have
	// changed, and would not see two writers meet in a row that stays the same.
	raise statement

	// mark reads the mark back where raise cannot return it. FOR UPDATE reads
	// what is locked, whatever snapshot the transaction may have.
	mark statement

	// floor reads the floor; see Guard.Expire. It is read for a resource without
	// a row, as it is now and not as of a snapshot.
	floor string

	// lift raises a mark that is below the floor to it.
	lift statement

	// savepoint and release enclose the raise and fn, in MySQL and SQLite. If the
	// transaction has ended unnoticed, release fails, for the savepoint has gone
	// with it. Without, MySQL's COMMIT would succeed:
	//
	//   - After a deadlock, whose error fn has not returned, or a statement that
	//     commits by itself (ALTER TABLE), the rest of fn has been running outside
	//     of any transaction.
	//   - With prepared statements, a node of MariaDB Galera may give up a
	//     transaction for that of another node, and not say so to the client. What
	//     follows is a new transaction. So the savepoint comes before the raise.
	savepoint, release string

	// id is the id of the transaction, in PostgreSQL. raise returns it too.
	// After a COMMIT within fn it is another one.
	id string
}

// argument is one of the values that statements are made with.
type argument int

const (
	argResource argument = iota
	argName
	argFirst // the token for a resource that has no mark
	argLow   // the lowest mark that the token may be compared with
	argToken
)

// arguments are the values, in the order of the constants.
type arguments [argToken + 1]any

// statement is a query, and what to give for its placeholders.
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

// statement replaces {resource}, {name} and so on by placeholders.
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
		a := map[string]argument{"resource": argResource, "name": argName, "first": argFirst, "low": argLow, "token": argToken}[name]
		s.args = append(s.args, a)
		if query = after; d != Postgres {
			text.WriteByte('?')
		} else {
			fmt.Fprintf(&text, "$%d", len(s.args))
		}
	}
}

// now is the time in seconds, by the database's clock.
func (d Dialect) now() string {
	switch d {
	case Postgres:
		return "CAST(EXTRACT(EPOCH FROM now()) AS bigint)"
	case MySQL:
		return "UNIX_TIMESTAMP()"
	}
	return "CAST(strftime('%s', 'now') AS INTEGER)"
}

// statements returns the statements for a table, whose name is quoted.
func (d Dialect) statements(table string) statements {
	s := statements{
		savepoint: "SAVEPOINT holdfast_guard",
		release:   "RELEASE SAVEPOINT holdfast_guard",
		floor:     "SELECT token FROM " + table + " WHERE resource = ''",
		lift:      d.statement("UPDATE " + table + " SET token = {token} WHERE resource = {resource} AND token < {token}"),
	}
	insert := "(resource, lock_name, token, raises, raised_at) VALUES ({resource}, {name}, {first}, 1, " + d.now() + ") "
	if d == MySQL {
		// The count of affected rows does not tell whether the mark was raised.
		// So it is read back. VALUES() is deprecated in MySQL, and what replaces
		// it is unknown to MariaDB: values are given again where they are needed.
		// Assignments take effect from left to right.
		s.raise = d.statement("INSERT INTO " + table + " " + insert + "ON DUPLICATE KEY UPDATE " +
			"lock_name = IF(lock_name = '' AND token BETWEEN {low} AND {token}, {name}, lock_name), " +
			"token = IF(token BETWEEN {low} AND {token} AND ({name} = '' OR lock_name = '' OR lock_name = {name}), {token}, token), " +
			"raises = raises + 1, raised_at = " + d.now())
		s.mark = d.statement("SELECT lock_name, token, raises, 0 FROM " + table + " WHERE resource = {resource} FOR UPDATE")
		s.floor += " LOCK IN SHARE MODE"
		return s
	}
	id := "0"
	if d == Postgres {
		s.savepoint, s.release = "", ""
		id = "txid_current()"
		s.id = "SELECT " + id
		s.floor += " FOR SHARE"
	}
	// excluded is the row that was to be inserted.
	s.raise = d.statement("INSERT INTO " + table + " AS f " + insert + "ON CONFLICT (resource) DO UPDATE SET " +
		"lock_name = CASE WHEN f.lock_name = '' AND f.token BETWEEN {low} AND {token} THEN excluded.lock_name ELSE f.lock_name END, " +
		"token = CASE WHEN f.token BETWEEN {low} AND {token} AND (excluded.lock_name = '' OR f.lock_name IN ('', excluded.lock_name)) " +
		"THEN {token} ELSE f.token END, " +
		"raises = f.raises + 1, raised_at = excluded.raised_at " +
		"RETURNING lock_name, token, raises, " + id)
	return s
}

// quoteTable quotes a name that Options.validate has passed.
func (d Dialect) quoteTable(table string) string {
	mark := `"`
	if d == MySQL {
		mark = "`"
	}
	return mark + strings.ReplaceAll(table, ".", mark+"."+mark) + mark
}
