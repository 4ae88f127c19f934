package page

import (
	"context"

	"entgo.io/ent/dialect"
	"github.com/jackc/pgx/v5"
)

var (
	pgxTx      pgx.Tx
	amount, id int64
	ent        generated
)

// generated is a part of what ent generates for a schema.
type generated struct{}

type client struct{ Account accounts }

type accounts struct{}

type update struct{}

func (generated) NewClient(func(dialect.Driver)) client      { return client{} }
func (generated) Driver(dialect.Driver) func(dialect.Driver) { return nil }
func (accounts) UpdateOneID(int) update                      { return update{} }
func (u update) AddBalance(int64) update                     { return u }
func (update) Exec(context.Context) error                    { return nil }
