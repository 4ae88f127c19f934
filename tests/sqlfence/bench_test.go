package sqlfence_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

// BenchmarkWrite measures what the guard costs a writer that updates one row by its key.
// See docs/fencing-sql.md.
//
//	go test -run '^$' -bench Write -benchtime 3s ./tests/sqlfence
func BenchmarkWrite(b *testing.B) {
	for _, k := range kinds[:3] {
		for _, durable := range []bool{false, true} {
			name := k.name
			if durable {
				name += ", waiting for the disk"
			}
			b.Run(name, func(b *testing.B) { benchmarkWrite(b, k, durable) })
		}
	}
}

func benchmarkWrite(b *testing.B, k kind, durable bool) {
	d := newDatabase(b, k)
	d.db.SetMaxOpenConns(1)
	d.exec(b, "INSERT INTO accounts (id, balance) VALUES (1, 0)")
	g := d.guard(b, nil)
	if durable {
		switch k.dialect {
		case sqlfence.SQLite:
			d.exec(b, "PRAGMA synchronous = FULL")
		case sqlfence.Postgres:
			d.exec(b, "SET synchronous_commit = on")
		case sqlfence.MySQL:
			d.exec(b, "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
			defer d.exec(b, "SET GLOBAL innodb_flush_log_at_trx_commit = 0")
		}
	}
	query := d.sql("UPDATE accounts SET balance = balance + 1 WHERE id = ?")
	update := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, query, 1)
		return err
	}
	b.Run("unguarded", func(b *testing.B) {
		for b.Loop() {
			tx, err := d.db.BeginTx(b.Context(), nil)
			if err != nil {
				b.Fatal(err)
			}
			if err := update(b.Context(), tx); err != nil {
				b.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("guarded", func(b *testing.B) {
		for b.Loop() {
			if err := g.Do(b.Context(), "account 1", holdfast.Token(5), update); err != nil {
				b.Fatal(err)
			}
		}
	})
	col, err := sqlfence.NewColumn(k.dialect, "fence")
	if err != nil {
		b.Fatal(err)
	}
	a := &account{d, col, 1}
	b.Run("column", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if err := a.set(b.Context(), d.db, i, 5); err != nil {
				b.Fatal(err)
			}
		}
	})
}
