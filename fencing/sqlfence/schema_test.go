package sqlfence_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

func TestMigrationsComeInPairs(t *testing.T) {
	for _, d := range []sqlfence.Dialect{sqlfence.Postgres, sqlfence.MySQL, sqlfence.SQLite} {
		up, err := fs.Glob(sqlfence.Migrations(d), "*.up.sql")
		if err != nil || len(up) == 0 {
			t.Fatalf("%v: %v, %v", d, up, err)
		}
		for _, name := range up {
			down := strings.TrimSuffix(name, ".up.sql") + ".down.sql"
			for _, file := range []string{name, down} {
				text, err := fs.ReadFile(sqlfence.Migrations(d), file)
				if err != nil || !strings.Contains(string(text), sqlfence.DefaultTable) {
					t.Errorf("%v: %s says nothing about the table: %v", d, file, err)
				}
			}
		}
	}
	if found, _ := fs.Glob(sqlfence.Migrations(0), "*"); len(found) > 0 {
		t.Errorf("an unknown dialect has files: %v", found)
	}
}
