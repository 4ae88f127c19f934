package page

import "github.com/jackc/pgx/v5"

var (
	pgxTx      pgx.Tx
	amount, id int64
)
