package sqlfence

import (
	"context"
	"database/sql"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

// Store returns the guard as a fencing.Store, for what stands in front of it: a
// middleware, an interceptor. It is one by the first of the two ways: mark and
// effect are one transaction, if the effect writes with the transaction that
// [TxFromContext] finds in its context. What else it does is not guarded.
//
// An effect is not repeated, whatever Options.Retry says: it may have answered
// a client. It runs before the commit. What it has told a client by then is not
// committed yet, so answer when Do has returned, as httpfence.Handler does.
func (g *Guard) Store() fencing.Store { return store{g} }

type store struct{ g *Guard }

// Do implements fencing.Store. Its errors beyond those of the contract are those
// of [Guard.Do].
func (s store) Do(ctx context.Context, resource string, c fencing.Claim, effect func(ctx context.Context) error) error {
	if effect == nil {
		return &holdfast.ArgumentError{Argument: "effect", Reason: "is nil"}
	}
	return s.g.doClaim(ctx, resource, c, nil, func(ctx context.Context, tx *sql.Tx) error {
		return effect(context.WithValue(ctx, txKey{}, tx))
	})
}

type txKey struct{}

// TxFromContext returns the transaction that an effect under [Guard.Store] is to
// write with. It ends when the effect has returned.
func TxFromContext(ctx context.Context) (*sql.Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(*sql.Tx)
	return tx, ok
}
