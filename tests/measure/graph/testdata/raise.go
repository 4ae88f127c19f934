package main

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

// raise fences a transaction of a driver that holdfast does not import.
func raise(ctx context.Context, tx pgx.Tx, marks *sqlfence.Marks, source fencing.Source) error {
	return marks.Raise(ctx, sqlfence.PgxTx(tx), "accounts/7", source)
}
