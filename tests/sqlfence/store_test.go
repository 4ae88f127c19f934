package sqlfence_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

func TestStoreGivesItsEffectTheTransaction(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		s := d.guard(t, &sqlfence.Options{Retry: retry()}).Store()
		c := fencing.Claim{Name: "lock", Token: 5}
		effect := func(result error) func(context.Context) error {
			return func(ctx context.Context) error {
				tx, ok := sqlfence.TxFromContext(ctx)
				if !ok {
					t.Fatal("no transaction")
				}
				return errors.Join(d.write("r", 5, "effect")(ctx, tx), result)
			}
		}
		if err := s.Do(t.Context(), "r", c, effect(nil)); err != nil {
			t.Error(err)
		}
		// An effect is not repeated, although the error is transient.
		if err := s.Do(t.Context(), "r", c, effect(gaveUp{})); !errors.Is(err, gaveUp{}) {
			t.Errorf("Do: %v", err)
		}
		if works, _ := d.works(t, "r"); len(works) != 1 {
			t.Errorf("works %v", works)
		}
		c.Token = 4
		if err := s.Do(t.Context(), "r", c, effect(nil)); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("Do: %v", err)
		}
	})
	if _, ok := sqlfence.TxFromContext(t.Context()); ok {
		t.Error("a context without a transaction has one")
	}
}
