package fence_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/fence"
)

func claim(token int64) fencing.Claim {
	return fencing.Claim{Name: "job", Token: holdfast.Token(token)}
}

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
	leave := func(err error) storeFunc {
		return func(ctx context.Context, effect func(context.Context) error) error {
			return errors.Join(err, effect(ctx))
		}
	}
	unknown := fmt.Errorf("the effect has committed: %w", holdfast.ErrOutcomeUnknown)
	skip := func(err error) storeFunc {
		return func(context.Context, func(context.Context) error) error { return err }
	}
	for name, c := range map[string]struct {
		store   storeFunc
		effect  error
		own     error // exactly
		want    error
		notDone bool
	}{
		"fine":                                   {run(nil), nil, nil, nil, false},
		"effect fails":                           {run(nil), own, own, nil, false},
		"effect fails, and left something there": {leave(unknown), own, nil, unknown, false},
		"outcome of the effect is unknown":       {run(nil), unknown, unknown, nil, false},
		"commit fails":                           {run(commit), nil, nil, commit, false},
		"store does not run it":                  {skip(commit), nil, nil, commit, true},
		"store is full":                          {skip(fencing.ErrFull), nil, nil, fencing.ErrFull, true},
		"store returns nil early":                {skip(nil), nil, nil, nil, true},
	} {
		var got fencing.Claim
		own, err := fence.Serve(t.Context(), c.store, "r", claim(7), func(ctx context.Context) error {
			got, _ = fencing.ClaimFromContext(ctx)
			return c.effect
		})
		if c.notDone {
			if err == nil || !errors.Is(err, fencing.ErrNotDone) || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if own != c.own || !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || got != claim(7) {
			t.Errorf("%s: %v, %v, claim %v", name, own, err, got)
		}
	}
}

// What the client is not told, the server's operator must be.
func TestCauseThatTheClientIsNotToldIsLogged(t *testing.T) {
	var log bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(old)
	_, _, target := fence.Read([]string{"job"}, []string{"7"},
		func() (resource, name string, err error) { return "", "", errors.New("no such tenant") })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		says string
	}{
		{t.Context(), errors.New("disk on fire"), "disk on fire"},
		{t.Context(), fencing.NotDone(errors.New("table of an older version")), "table of an older version"},
		{t.Context(), target, "no such tenant"},
		{t.Context(), fencing.ErrStale, ""}, // recorded
		{ended, fencing.NotDone(context.Canceled), ""},
		{ended, context.Canceled, "context canceled"}, // perhaps done
	} {
		log.Reset()
		fence.Refuse(c.ctx, quiet, "r", claim(7), "peer", c.err)
		if (log.Len() > 0) != (c.says != "") || !strings.Contains(log.String(), c.says) {
			t.Errorf("%v: logged %q", c.err, &log)
		}
	}
}

var quiet = audit.Func(func(context.Context, audit.Record) {})

func TestOnlyRefusalsOfTheClaimAreRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		refusal bool
		mark    holdfast.Token
	}{
		"stale":       {fmt.Errorf("wrapped: %w", &fencing.MarkError{Resource: "r", Claim: claim(5), Mark: 7}), true, 7},
		"stale, SQL":  {fencing.ErrStale, true, 0},
		"other name":  {&fencing.OtherNameError{}, true, 0},
		"none":        {holdfast.ErrNoToken, true, 0},
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
