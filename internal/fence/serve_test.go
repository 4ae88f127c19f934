package fence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/fence"
)

func claim(token int64) fencing.Claim { return fencing.Claim{Name: "job", Token: fencing.Token(token)} }

// storeFunc is a store that is a function.
type storeFunc func(ctx context.Context, effect func(context.Context) error) error

func (f storeFunc) Do(ctx context.Context, _ string, c fencing.Claim, effect func(context.Context) error) error {
	return f(ctx, effect)
}

func TestServeTellsTheEffectsErrorFromTheStores(t *testing.T) {
	own, commit := errors.New("own"), errors.New("commit")
	run := func(err error) storeFunc {
		return func(ctx context.Context, effect func(context.Context) error) error {
			if err := effect(ctx); err != nil {
				return fmt.Errorf("rolled back: %w", err)
			}
			return err
		}
	}
	skip := func(err error) storeFunc {
		return func(context.Context, func(context.Context) error) error { return err }
	}
	for name, c := range map[string]struct {
		store   storeFunc
		effect  error
		want    error // exactly, unless notDone
		notDone bool
	}{
		"fine":                    {run(nil), nil, nil, false},
		"effect fails":            {run(nil), own, own, false},
		"commit fails":            {run(commit), nil, commit, false},
		"store does not run it":   {skip(commit), nil, commit, true},
		"store is full":           {skip(fencing.ErrFull), nil, fencing.ErrFull, true},
		"store returns nil early": {skip(nil), nil, nil, true},
	} {
		var got fencing.Claim
		err := fence.Serve(t.Context(), c.store, "r", claim(7), func(ctx context.Context) error {
			got, _ = fencing.ClaimFromContext(ctx)
			return c.effect
		})
		if c.notDone {
			if err == nil || !errors.Is(err, fencing.ErrNotDone) || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != c.want || got != claim(7) {
			t.Errorf("%s: %v, claim %v", name, err, got)
		}
	}
}

func TestOnlyRefusalsOfTheClaimAreRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		refusal bool
		mark    int64
	}{
		"stale":       {fmt.Errorf("wrapped: %w", &fencing.MarkError{Resource: "r", Claim: claim(5), Mark: 7}), true, 7},
		"stale, SQL":  {fencing.ErrStale, true, 0},
		"other name":  {&fencing.OtherNameError{}, true, 0},
		"none":        {fencing.ErrNoToken, true, 0},
		"malformed":   {&fencing.ClaimError{}, true, 0},
		"full":        {fencing.ErrFull, false, 0},
		"context":     {context.Canceled, false, 0},
		"no error":    {nil, false, 0},
		"unreachable": {errors.New("unreachable"), false, 0},
	} {
		var got []audit.Record
		keep := audit.Func(func(_ context.Context, r audit.Record) { got = append(got, r) })
		fence.AuditRefusal(t.Context(), keep, "r", claim(5), "peer", c.err)
		if (len(got) == 1) != c.refusal {
			t.Errorf("%s: %d records", name, len(got))
			continue
		}
		if !c.refusal {
			continue
		}
		if r := got[0]; r.Event != audit.Refused || r.Resource != "r" || r.Name != "job" || r.Token != 5 ||
			r.Mark != c.mark || r.Holder != "peer" || r.Err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
