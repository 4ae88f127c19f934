package sqlfence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

// pgbouncer starts a pooler in front of a database of PostgreSQL, with fewer connections to the
// server than the test has, and returns the database as seen through it.
func pgbouncer(t *testing.T, d *database, mode string) *database {
	t.Helper()
	return pgbouncerTo(t, d, postgres.dir, mode, "default_query_exec_mode=exec")
}

// pgbouncerTo is pgbouncer for the server behind the socket in dir, and clients with these options.
func pgbouncerTo(t *testing.T, d *database, dir, mode, options string) *database {
	t.Helper()
	s := startFor(t, &server{
		name: "pgbouncer", packages: "pgbouncer", user: "postgres", done: make(chan struct{}),
		find:  findPgbouncer,
		ready: "process up", quickly: syscall.SIGKILL,
		install: func(s *server, _ []string) error {
			prepared := ""
			if knowsPreparedStatements(t) {
				prepared = "max_prepared_statements = 100\n" // the default is 0 before 1.24
			}
			config := fmt.Sprintf("[databases]\npostgres = host=%s user=postgres connect_query='SET search_path = %s'\n"+
				"[pgbouncer]\nlisten_addr =\nlisten_port = 6432\nunix_socket_dir = %s\nauth_type = any\n"+
				"pool_mode = %s\ndefault_pool_size = 3\n%s[users]\n", dir, d.id, s.dir, mode, prepared)
			return os.WriteFile(filepath.Join(s.dir, "ini"), []byte(config), 0o644)
		},
		command: func(s *server, paths []string) *exec.Cmd {
			return exec.Command(paths[0], filepath.Join(s.dir, "ini"))
		},
	})
	s.require(t)
	c, err := stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector("host=" + s.dir +
		" port=6432 user=postgres dbname=postgres sslmode=disable " + options)
	if err != nil {
		t.Fatal(err)
	}
	through := &database{kind: d.kind, id: d.id, connector: c}
	through.db = through.pool(t, c)
	return through
}

func findPgbouncer() ([]string, bool) {
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/pgbouncer") // often not in PATH
	}
	return []string{path}, err == nil
}

// A transaction stays on one connection of the server, the next one may use another.
func TestNoStaleWriteLandsThroughAPooler(t *testing.T) {
	for _, mode := range []string{"session", "transaction"} {
		t.Run(mode, func(t *testing.T) {
			d := pgbouncer(t, newDatabase(t, kinds[1]), mode)
			if mode == "session" {
				d.db.SetMaxOpenConns(3) // more would wait until one of these is closed
			}
			g := d.guard(t, &sqlfence.Options{Retry: retry()})
			newContest(d, "a", "b", "c").run(t, 20, func(
				ctx context.Context, resource string, token holdfast.Token, work string,
			) error {
				return g.Do(ctx, resource, token, d.write(resource, token, work))
			})
			err := g.Do(t.Context(), "r", holdfast.Token(5), func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "COMMIT")
				return err
			})
			if !errors.Is(err, sqlfence.ErrTxEnded) {
				t.Errorf("work that commits in SQL: %v", err)
			}
		})
	}
}

// A pooler that does not keep track of prepared statements, as none before pgbouncer 1.21 does, gives one client those
// of another. The guides say to set another mode for pgx; without it nothing is written, and the error names it.
func TestPoolerByTransactionNeedsToKnowPreparedStatements(t *testing.T) {
	direct := newDatabase(t, kinds[1])
	direct.guard(t, nil)
	for mode, works := range map[string]bool{"": knowsPreparedStatements(t), "default_query_exec_mode=exec": true} {
		through := pgbouncerTo(t, direct, postgres.dir, "transaction", mode)
		for client := range 2 {
			db := through.pool(t, through.connector)
			g, err := sqlfence.New(db, sqlfence.Postgres, sqlfence.Options{Auditor: quiet})
			if err != nil {
				t.Fatal(err)
			}
			resource := mode + fmt.Sprint(client)
			err = g.Do(t.Context(), resource, holdfast.Token(5), direct.write(resource, 5, ""))
			if landed := err == nil; landed != (works || client == 0) || landed != (direct.mark(t, resource) == 5) {
				t.Errorf("mode %q, client %d: %v, mark %v", mode, client, err, direct.mark(t, resource))
			} else if !landed && (!errors.Is(err, fencing.ErrNotDone) || !strings.Contains(err.Error(), "prepared statement")) {
				t.Errorf("mode %q, client %d: %v", mode, client, err)
			}
		}
	}
}

// knowsPreparedStatements reports whether pgbouncer is of version 1.21 or newer.
func knowsPreparedStatements(t *testing.T) bool {
	paths, ok := findPgbouncer()
	if !ok {
		return false // the test will be skipped
	}
	out, err := exec.Command(paths[0], "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	var minor int
	if _, err := fmt.Sscanf(string(out), "PgBouncer 1.%d", &minor); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	return minor >= 21
}

// Pooling by statement would take the mark's row from under the work.
func TestPoolerByStatementIsRefused(t *testing.T) {
	direct := newDatabase(t, kinds[1])
	direct.guard(t, nil)
	g, err := sqlfence.New(pgbouncer(t, direct, "statement").db, sqlfence.Postgres, sqlfence.Options{Auditor: quiet})
	if err != nil {
		t.Fatal(err)
	}
	err = g.Do(t.Context(), "r", holdfast.Token(5), neverCalled(t))
	if err == nil || !strings.Contains(err.Error(), "statement pooling") || direct.mark(t, "r") != 0 {
		t.Errorf("Do: %v, mark %v", err, direct.mark(t, "r"))
	}
}
