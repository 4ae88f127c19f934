package sqlfence_test

import (
	"path/filepath"
	"testing"

	"modernc.org/sqlite"

	"github.com/holdfast-go/holdfast"
)

// Without WAL a reader blocks the commit of a writer. SQLite returns SQLITE_BUSY and leaves
// the transaction open on its connection.
func TestCommitThatIsBusyLeavesNoTransactionOpen(t *testing.T) {
	c, err := sqlite.NewConnector("file:" + filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	d := &database{kind: kinds[0], connector: c}
	d.db = d.pool(t, c)
	d.exec(t, "CREATE TABLE history (seq INTEGER PRIMARY KEY, resource TEXT, token INTEGER, work TEXT)")
	g := d.guard(t, nil)
	reader := d.pool(t, c)
	d.exec(t, "INSERT INTO history (resource, token, work) VALUES ('x', 1, '')")
	d.exec(t, "INSERT INTO history (resource, token, work) VALUES ('x', 1, '')")
	rows, err := reader.QueryContext(t.Context(), "SELECT seq FROM history")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	if !rows.Next() {
		t.Fatal("no rows")
	}
	err = g.Do(t.Context(), "r", holdfast.Token(5), d.write("r", 5, "busy"))
	if err == nil {
		t.Fatal("the commit was not busy")
	}
	if err := rows.Close(); err != nil {
		t.Fatal(err)
	}
	if err := g.Do(t.Context(), "r", holdfast.Token(5), d.write("r", 5, "next")); err != nil {
		t.Errorf("the next write: %v", err)
	}
	if works, _ := d.works(t, "r"); len(works) != 1 || works[0] != "next" {
		t.Errorf("works %v", works)
	}
}
