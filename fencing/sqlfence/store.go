package sqlfence

import (
	"context"
	"database/sql"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

// Store returns the guard as a fencing.Store, for a middleware or interceptor. The effect is guarded
// as far as it writes with the transaction of [TxFromContext]. It runs once, whatever Options.Retry
// is, and before the commit. Options.Auditor gets no records from it.
func (g *Guard) Store() fencing.Store { return store{g} }

type store struct{ g *Guard }

// Do implements fencing.Store, with the errors of [Guard.DoClaim].
func (s store) Do(
	ctx context.Context, resource string, c fencing.Claim, effect func(ctx context.Context) error,
) error {
	if effect == nil {
		return &holdfast.ArgumentError{Argument: "effect", Reason: "is nil"}
	}
	r := s.g.claimRequest(resource, c, func(ctx context.Context, tx *sql.Tx) error {
		return effect(context.WithValue(ctx, txKey{}, tx))
	})
	r.callerAudits = true
	return r.do(ctx, nil)
}

type txKey struct{}

// TxFromContext returns the transaction of an effect under [Guard.Store]. It ends when
// the effect returns.
func TxFromContext(ctx context.Context) (*sql.Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(*sql.Tx)
	return tx, ok
}
