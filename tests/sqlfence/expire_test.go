package sqlfence_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

func TestExpiredMarkLetsNoStaleTokenIn(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		do := func(resource string, token fencing.Token) error {
			return g.Do(t.Context(), resource, token, d.write(resource, token, ""))
		}
		for resource, token := range map[string]fencing.Token{"job 1": 5, "job 2": 7, "busy": 6, "above": 30, "from before": 4} {
			if err := do(resource, token); err != nil {
				t.Fatal(err)
			}
		}
		d.exec(t, "UPDATE holdfast_fence SET raised_at = raised_at - 7200 WHERE resource <> ?", d.resource("busy"))
		d.exec(t, "UPDATE holdfast_fence SET raised_at = 0 WHERE resource = ?", d.resource("from before"))
		n, err := g.Expire(t.Context(), fencing.Token(20), time.Hour)
		if err != nil || n != 2 {
			t.Errorf("%d marks have expired, %v; want 2", n, err)
		}
		for resource, want := range map[string]fencing.Token{"job 1": 0, "job 2": 0, "busy": 6, "above": 30, "from before": 4} {
			if got := d.mark(t, resource); got != want {
				t.Errorf("%s: mark %v, want %v", resource, got, want)
			}
		}
		for range 2 {
			err := do("job 2", 6)
			if e, ok := errors.AsType[*sqlfence.ExpiredError](err); !ok || !errors.Is(err, fencing.ErrStale) || !errors.Is(err, sqlfence.ErrExpired) || e.Below.Mark != 8 {
				t.Errorf("a stale token: %v", err)
			}
		}
		for _, c := range []struct {
			resource string
			token    fencing.Token
		}{{"job 2", 8}, {"never seen", 20}, {"busy", 6}} {
			if err := do(c.resource, c.token); err != nil {
				t.Errorf("%s: %v", c.resource, err)
			}
		}
		// The caller commits what was refused.
		tx, err := d.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Raise(t.Context(), sqlfence.SQLTx(tx), "job 1", fencing.Token(4)); !errors.Is(err, sqlfence.ErrExpired) {
			t.Errorf("Raise: %v", err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := do("job 1", 4); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("after a refused raise that was committed: %v", err)
		}
	})
}

func TestExpireRefusesWhatCannotHold(t *testing.T) {
	g := closed(t)
	if _, err := g.Expire(t.Context(), fencing.Token(5), 0); !isArgument(err, "idle") {
		t.Errorf("no time: %v", err)
	}
	if _, err := g.Expire(t.Context(), nil, time.Hour); !errors.Is(err, fencing.ErrNoToken) {
		t.Errorf("no source: %v", err)
	}
}

func TestResetDropsOneMarkAndSaysSo(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		var records []audit.Record
		audit := audit.Func(func(_ context.Context, r audit.Record) { records = append(records, r) })
		g := d.guard(t, nil)
		for _, resource := range []string{"r", "other"} {
			if err := g.Do(t.Context(), resource, namedHolder{&holder{"a", 7, nil}}, d.write(resource, 7, "")); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := g.Reset(t.Context(), "r", audit); err != nil {
				t.Error(err)
			}
		}
		if len(records) != 1 || records[0].Event != audit.Reset || records[0].Resource != "r" || records[0].Mark != 7 || records[0].Name != "a" {
			t.Errorf("records %+v", records)
		}
		if d.mark(t, "r") != 0 || d.mark(t, "other") != 7 {
			t.Errorf("marks %v, %v", d.mark(t, "r"), d.mark(t, "other"))
		}
		if err := g.Do(t.Context(), "r", namedHolder{&holder{"b", 3, nil}}, d.write("r", 3, "")); err != nil {
			t.Errorf("another lock, after the reset: %v", err)
		}
		if err := g.Reset(t.Context(), "", audit); err == nil {
			t.Error("a resource without a name was reset")
		}
	})
}

func TestTokenFarAheadOfTheMarkIsNotMarked(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		at := func(epoch int64) fencing.Token {
			token, err := fencing.NewToken(epoch, 9)
			if err != nil {
				t.Fatal(err)
			}
			return token
		}
		for _, step := range []struct {
			epoch int64
			want  error
		}{{1025, fencing.ErrEpochStep}, {1024, nil}, {2049, fencing.ErrEpochStep}, {2048, nil}, {fencing.MaxEpoch, fencing.ErrEpochStep}} {
			err := g.Do(t.Context(), "r", at(step.epoch), d.write("r", at(step.epoch), ""))
			if !errors.Is(err, step.want) || (err == nil) != (step.want == nil) {
				t.Errorf("epoch %d: %v, want %v", step.epoch, err, step.want)
			}
		}
		if d.mark(t, "r") != at(2048) {
			t.Errorf("mark %v", d.mark(t, "r"))
		}
	})
}

func TestTableOfAnOlderVersionIsNamedBeforeAnyEffectAndBroughtUpToDate(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		first, err := fs.ReadFile(sqlfence.Migrations(d.dialect), "0001_holdfast_fence.up.sql")
		if err != nil {
			t.Fatal(err)
		}
		d.exec(t, string(first))
		d.exec(t, "INSERT INTO holdfast_fence (resource, lock_name, token) VALUES (?, ?, 7)", d.resource("r"), d.resource(""))
		g, err := sqlfence.New(d.db, d.dialect, &sqlfence.Options{Auditor: unheard})
		if err != nil {
			t.Fatal(err)
		}
		err = g.Do(t.Context(), "r", fencing.Token(8), neverCalled(t))
		if _, ok := errors.AsType[*sqlfence.SchemaError](err); !ok || !strings.Contains(err.Error(), "ALTER TABLE") || !strings.Contains(err.Error(), "EnsureSchema") {
			t.Errorf("Do: %v", err)
		}
		t.Log(err)
		if d.mark(t, "r") != 7 {
			t.Errorf("mark %v", d.mark(t, "r"))
		}
		if err := g.EnsureSchema(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := g.Do(t.Context(), "r", fencing.Token(6), neverCalled(t)); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("after EnsureSchema: %v", err)
		}
		// A guard of the older version goes on with the new table.
		d.exec(t, "INSERT INTO holdfast_fence (resource, lock_name, token) VALUES (?, ?, 7)", d.resource("s"), d.resource(""))
		if err := g.Do(t.Context(), "s", fencing.Token(8), d.write("s", 8, "")); err != nil {
			t.Error(err)
		}
	})
}
