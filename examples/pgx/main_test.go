//go:build unix

package main

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m, main) }

func TestTransactionOfAStaleHolderIsRefusedAndNothingIsLeftBehind(t *testing.T) {
	if _, found := postgresPath(); !found {
		t.Skip(errNoPostgres)
	}
	dsn, stop, err := startPostgres(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	demotest.CheckShown(t, demotest.Output(t, "--dsn", dsn), true)

	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var schemas int
	if err := conn.QueryRow(t.Context(),
		"SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'holdfast%'").Scan(&schemas); err != nil || schemas != 0 {
		t.Errorf("%d schemas, %v", schemas, err)
	}
}
