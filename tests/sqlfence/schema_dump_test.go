package sqlfence_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

// backup saves the rows of a database without its schema, as the programs of the packages do. restore loads them
// again; strictly, as the guide says to, or as these programs do by themselves.
type backup struct {
	save    func(t *testing.T, d *database) (saved []byte)
	restore func(t *testing.T, d *database, saved []byte, strictly bool) error
}

var backups = map[sqlfence.Dialect]backup{
	sqlfence.Postgres: {
		save: func(t *testing.T, d *database) []byte {
			return output(t, nil, postgresProgram("pg_dump"), "-h", postgres.dir, "-U", "postgres",
				"--data-only", "--schema="+d.id, "postgres")
		},
		restore: func(t *testing.T, d *database, saved []byte, strictly bool) error {
			args := []string{"-X", "-h", postgres.dir, "-U", "postgres", "-f", "-"}
			if strictly {
				args = append(args, "--single-transaction", "-v", "ON_ERROR_STOP=1")
			}
			return run(saved, nil, postgresProgram("psql"), append(args, "postgres")...)
		},
	},
	sqlfence.MySQL: {
		save: func(t *testing.T, d *database) []byte {
			return output(t, nil, "mariadb-dump", "--no-defaults", "--socket="+mariadb.socket(), "--user=root",
				"--no-create-info", d.id)
		},
		restore: func(t *testing.T, d *database, saved []byte, _ bool) error {
			return run(saved, nil, "mariadb", "--no-defaults", "--socket="+mariadb.socket(), "--user=root", d.id)
		},
	},
	sqlfence.SQLite: {
		save: func(t *testing.T, d *database) []byte {
			path := filepath.Join(t.TempDir(), "backup")
			d.exec(t, "VACUUM INTO ?", path)
			return []byte(path)
		},
		restore: func(t *testing.T, d *database, saved []byte, _ bool) error {
			conn, err := d.db.Conn(t.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			for _, statement := range []string{
				"ATTACH '" + string(saved) + "' AS backup",
				"INSERT INTO history SELECT * FROM backup.history",
				"INSERT INTO holdfast_fence SELECT * FROM backup.holdfast_fence",
				"DETACH backup",
			} {
				if _, err := conn.ExecContext(t.Context(), statement); err != nil {
					_, _ = conn.ExecContext(context.WithoutCancel(t.Context()), "DETACH backup")
					return err
				}
			}
			return nil
		},
	},
}

// The rows of a backup are loaded into a database whose tables were just created.
func TestMarksAreRestoredFromADumpOfTheDataAlone(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		b := backups[d.dialect]
		g := d.guard(t, nil)
		do := func(resource string, token holdfast.Token) error {
			return g.Do(t.Context(), resource, token, d.write(resource, token, ""))
		}
		for resource, token := range map[string]holdfast.Token{"r": 7, "expired": 3} {
			if err := do(resource, token); err != nil {
				t.Fatal(err)
			}
		}
		d.exec(t, "UPDATE holdfast_fence SET raised_at = 1000 WHERE resource = ?", d.resource("expired"))
		if n, err := g.Expire(t.Context(), holdfast.Token(20), time.Hour); n != 1 || err != nil {
			t.Fatalf("%d marks expired, %v", n, err)
		}
		saved := b.save(t, d)

		d.exec(t, "DELETE FROM history")
		d.exec(t, "DROP TABLE holdfast_fence")
		g = d.guard(t, nil)
		if err := b.restore(t, d, saved, false); err != nil {
			t.Fatal(err)
		}
		if _, tokens := d.works(t, "r"); len(tokens) != 1 {
			t.Fatalf("the history was not restored: %v", tokens)
		}
		if err := do("r", 5); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("5 after 7 and a restore: %v", err)
		}
		if err := do("expired", 2); !errors.Is(err, sqlfence.ErrExpired) {
			t.Errorf("a token below the restored floor: %v", err)
		}
		if err := do("r", 7); err != nil {
			t.Errorf("7 after a restore: %v", err)
		}

		// A table that has marks of its own takes those of a dump only if it is emptied.
		if err := b.restore(t, d, saved, true); err == nil {
			t.Error("a restore over other marks succeeded")
		}
		d.exec(t, "DELETE FROM history")
		d.exec(t, "DELETE FROM holdfast_fence")
		if err := b.restore(t, d, saved, true); err != nil {
			t.Error(err)
		}
		if err := do("r", 5); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("5 after 7 and a restore over other marks: %v", err)
		}
	})
}

// postgresProgram returns the path of a program beside the server's.
func postgresProgram(name string) string { return filepath.Join(filepath.Dir(postgresPath()), name) }

func output(t *testing.T, stdin []byte, program string, args ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := run(stdin, &out, program, args...); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func run(stdin []byte, stdout *bytes.Buffer, program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var discard, log bytes.Buffer
	if stdout == nil {
		stdout = &discard
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), stdout, &log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(program), err, &log)
	}
	return nil
}
