package sqlfence_test

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

// newStandby returns a server that streams from postgres. A promoted standby cannot follow
// again, so each run of a test needs a new one.
func newStandby(t *testing.T) *server {
	return startFor(t, &server{
		name: "PostgreSQL", packages: "postgresql", user: "postgres", done: make(chan struct{}),
		find: findPostgres, command: runPostgres,
		ready: "ready to accept read-only connections", quickly: syscall.SIGQUIT,
		install: func(s *server, paths []string) error {
			postgres.startOnce()
			if <-postgres.done; postgres.err != nil {
				return postgres.err
			}
			copy := filepath.Join(filepath.Dir(paths[0]), "pg_basebackup")
			return s.run(exec.Command(copy, "-h", postgres.dir, "-U", "postgres", "-D", filepath.Join(s.dir, "data"),
				"-R", "-X", "stream", "-c", "fast", "--no-sync"))
		},
	})
}

// newMariaDBWithLog returns a server that can be a replica, or, with a port on the loopback
// address, a primary.
func newMariaDBWithLog(t *testing.T, port int) *server {
	return startFor(t, &server{
		name: "MariaDB", packages: "mariadb-server", user: "mysql", done: make(chan struct{}),
		find: findMariaDB, install: installMariaDB, ready: "ready for connections", quickly: syscall.SIGKILL,
		command: func(s *server, paths []string) *exec.Cmd {
			cmd := runMariaDBWithLog(s, paths)
			if port != 0 {
				return withArgs(cmd, "--server-id=1", "--skip-networking=0", "--bind-address=127.0.0.1",
					"--port="+strconv.Itoa(port))
			}
			return withArgs(cmd, "--server-id=2")
		},
	})
}

func withArgs(cmd *exec.Cmd, args ...string) *exec.Cmd {
	cmd.Args = append(cmd.Args, args...)
	return cmd
}

// startFor starts a server that stops when the test ends.
func startFor(t *testing.T, s *server) *server {
	s.startOnce()
	t.Cleanup(s.end)
	return s
}

// testPromotion promotes a copy that lacks the latest write. Its mark is as old as its
// data, but never older than the work in it.
func testPromotion(t *testing.T, d *database, copied func(), cut func(), promote func() *database) {
	g := d.guard(t, nil)
	if err := g.Do(t.Context(), "r", holdfast.Token(5), d.write("r", 5, "held")); err != nil {
		t.Fatal(err)
	}
	copied()
	cut()
	if err := g.Do(t.Context(), "r", holdfast.Token(7), d.write("r", 7, "lost with the primary")); err != nil {
		t.Fatal(err)
	}
	promoted := promote()
	if works, _ := promoted.works(t, "r"); !slices.Equal(works, []string{"held"}) || promoted.mark(t, "r") != 5 {
		t.Fatalf("the copy has works %v, mark %v", works, promoted.mark(t, "r"))
	}
	g = promoted.guard(t, nil)
	// The mark of 7 is lost with its write, so 5 is admitted again.
	stale := promoted.write("r", 5, "stale, but nothing newer is here")
	if err := g.Do(t.Context(), "r", holdfast.Token(5), stale); err != nil {
		t.Errorf("before the present holder has written: %v", err)
	}
	// From the present holder's first write on, the stale one is refused.
	m, err := sqlfence.NewMarks(d.dialect, sqlfence.Options{Auditor: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := promoted.raised(t, m, "r", holdfast.Token(7), "present"); err != nil {
		t.Fatal(err)
	}
	if err := g.Do(t.Context(), "r", holdfast.Token(5), neverCalled(t)); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("after the present holder has written: %v", err)
	}
	if _, tokens := promoted.works(t, "r"); !slices.IsSorted(tokens) {
		t.Errorf("tokens %v", tokens)
	}
}

func TestPromotedReplicaOfMariaDBHasTheMarksOfItsData(t *testing.T) {
	primaryPort := freePorts(1)[0]
	primary, replica := newMariaDBWithLog(t, primaryPort), newMariaDBWithLog(t, 0)
	primary.require(t)
	replica.require(t)
	d := newDatabase(t, kind{"MariaDB", sqlfence.MySQL, openMariaDBOn(primary, false), ""})
	other := &database{kind: d.kind, id: d.id}
	other.db = other.pool(t, replica.connector(t, "", false))
	d.exec(t, "CREATE USER copy@'127.0.0.1'")
	d.exec(t, "GRANT REPLICATION SLAVE ON *.* TO copy@'127.0.0.1'")
	other.exec(t, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = %d, "+
		"MASTER_USER = 'copy', MASTER_USE_GTID = slave_pos", primaryPort))
	other.exec(t, "START SLAVE")
	testPromotion(t, d, func() {
		var position string
		if err := d.db.QueryRowContext(t.Context(), "SELECT @@gtid_binlog_pos").Scan(&position); err != nil {
			t.Fatal(err)
		}
		if other.number(t, "SELECT MASTER_GTID_WAIT(?, 60)", position) != 0 {
			t.Fatal("the replica did not catch up")
		}
	}, func() { other.exec(t, "STOP SLAVE") }, func() *database {
		other.exec(t, "RESET SLAVE ALL")
		other.db = other.pool(t, replica.connector(t, d.id, false))
		return other
	})
}

func TestPromotedStandbyOfPostgreSQLHasTheMarksOfItsData(t *testing.T) {
	postgres.require(t)
	if _, err := os.Stat(filepath.Join(filepath.Dir(postgresPath()), "pg_basebackup")); err != nil {
		t.Skip("pg_basebackup is not installed: apt-get install postgresql")
	}
	d := newDatabase(t, kinds[1])
	standby := newStandby(t)
	standby.require(t)
	other := &database{kind: d.kind, id: d.id}
	c, err := stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector(
		"host=" + standby.dir + " user=postgres dbname=postgres sslmode=disable search_path=" + d.id)
	if err != nil {
		t.Fatal(err)
	}
	other.db = other.pool(t, c)
	wait := func(what, query string, args ...any) {
		t.Helper()
		for ctx := deadline(t); ctx.Err() == nil; {
			var ok sql.NullBool
			if err := other.db.QueryRowContext(t.Context(), query, args...).Scan(&ok); err != nil {
				t.Fatal(err)
			}
			if ok.Bool {
				return
			}
		}
		t.Fatalf("did not happen: %s", what)
	}
	testPromotion(t, d, func() {
		var position string
		if err := d.db.QueryRowContext(t.Context(), "SELECT pg_current_wal_insert_lsn()::text").Scan(&position); err != nil {
			t.Fatal(err)
		}
		d.exec(t, "SET synchronous_commit = on") // so that the next commit flushes the log
		d.exec(t, "CREATE TABLE flush ()")
		wait("standby caught up", "SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn", position)
	}, func() {
		other.exec(t, "ALTER SYSTEM SET primary_conninfo = ''")
		wait("configuration reloaded", "SELECT pg_reload_conf()")
		wait("standby cut off", "SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)")
	}, func() *database {
		wait("standby promoted", "SELECT pg_promote()")
		return other
	})
}

func postgresPath() string {
	if paths, ok := findPostgres(); ok {
		return paths[0]
	}
	return ""
}
