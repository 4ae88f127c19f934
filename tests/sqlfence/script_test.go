package sqlfence_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

// scripts returns the script of docs/command.md that begins with that program, and what makes its table.
func scripts(t *testing.T, program string) (script string, table []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/command.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(pattern string) string {
		found := regexp.MustCompile("(?s)\n```"+pattern+"```\n").FindAllStringSubmatch(string(text), -1)
		if len(found) != 1 {
			t.Fatalf("docs/command.md has %d blocks %s", len(found), pattern)
		}
		return found[0][1]
	}
	table = strings.SplitAfter(strings.TrimSpace(block("sql\n(CREATE TABLE jobs[^`]*)")), ";\n")
	return block("sh\n(" + program + " [^`]*)"), table
}

// connection is what tells the client of a database where that is.
func (d *database) connection(t *testing.T) []string {
	t.Helper()
	if d.dialect == sqlfence.Postgres {
		return []string{
			"PGHOST=" + postgres.dir, "PGUSER=postgres", "PGDATABASE=postgres", "PGOPTIONS=-c search_path=" + d.id,
		}
	}
	home := t.TempDir()
	settings := fmt.Sprintf("[client]\nuser=root\nsocket=%s\n[mysql]\ndatabase=%s\n", mariadb.socket(), d.id)
	if err := os.WriteFile(filepath.Join(home, ".my.cnf"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"HOME=" + home}
}

func TestScriptOfAFormerHolderWritesNothing(t *testing.T) {
	for program, k := range map[string]kind{"psql": kinds[1], "mysql": kinds[2]} {
		t.Run(program, func(t *testing.T) {
			if _, err := exec.LookPath(program); err != nil {
				t.Skipf("no %s: apt-get install postgresql-client mariadb-client", program)
			}
			d := newDatabase(t, k)
			script, table := scripts(t, program)
			for _, statement := range table {
				d.exec(t, statement)
			}
			d.exec(t, "INSERT INTO accounts (id, balance) VALUES (7, 100)")
			env := append(os.Environ(), d.connection(t)...)
			for _, c := range []struct {
				token   int
				balance int64
			}{
				{token: 5, balance: 90},
				{token: 5, balance: 80}, // the same holder once more
				{token: 7, balance: 70},
				{token: 5, balance: 70}, // late
			} {
				cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
				cmd.Env = append(env, fmt.Sprint("HOLDFAST_TOKEN=", c.token))
				out, err := cmd.CombinedOutput()
				var balance int64
				row := d.db.QueryRowContext(t.Context(), "SELECT balance FROM accounts WHERE id = 7")
				if err := row.Scan(&balance); err != nil {
					t.Fatal(err)
				}
				refused := c.token == 5 && balance == 70
				if balance != c.balance || (err != nil) != refused {
					t.Errorf("token %d: balance %d, want %d; %v\n%s", c.token, balance, c.balance, err, out)
				}
			}
			d.exec(t, "DELETE FROM jobs")
			cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
			cmd.Env = append(env, "HOLDFAST_TOKEN=9")
			if out, err := cmd.CombinedOutput(); err == nil {
				t.Errorf("without a row for the job it succeeds: %s", out)
			}
		})
	}
}
