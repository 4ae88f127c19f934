package sqlfence_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

func TestResetDeletesOneMarkAndIsRecorded(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		var records []audit.Record
		keep := audit.Func(func(_ context.Context, r audit.Record) { records = append(records, r) })
		g := d.guard(t, nil)
		for _, resource := range []string{"r", "other"} {
			if err := g.Do(t.Context(), resource, &holder{"a", 7, nil}, d.write(resource, 7, "")); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := g.Reset(t.Context(), "r", keep); err != nil {
				t.Error(err)
			}
		}
		if len(records) != 1 {
			t.Fatalf("records %+v", records)
		}
		if r := records[0]; r.Event != audit.Reset || r.Resource != "r" || r.Mark != 7 || r.Name != "a" {
			t.Errorf("record %+v", r)
		}
		if d.mark(t, "r") != 0 || d.mark(t, "other") != 7 {
			t.Errorf("marks %v, %v", d.mark(t, "r"), d.mark(t, "other"))
		}
		if err := g.Do(t.Context(), "r", &holder{"b", 3, nil}, d.write("r", 3, "")); err != nil {
			t.Errorf("another lock after the reset: %v", err)
		}
	})
}

func TestResetDeletesAMarkThatIsRaisedMeanwhile(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		var records []audit.Record
		keep := audit.Func(func(_ context.Context, r audit.Record) { records = append(records, r) })
		other := d.guard(t, nil)
		raise := func(token holdfast.Token) {
			if err := other.Do(t.Context(), "r", token, d.write("r", token, "")); err != nil {
				t.Error(err)
			}
		}
		raise(7)
		g := d.guardOver(t, d.pool(t, &lossy{Connector: d.connector,
			exec: func(query string, real func() (driver.Result, error)) (driver.Result, error) {
				if strings.HasPrefix(query, "DELETE") && d.mark(t, "r") == 7 {
					raise(9)
				}
				return real()
			}}), &sqlfence.Options{Auditor: keep})
		if err := g.Reset(t.Context(), "r", nil); err != nil || d.mark(t, "r") != 0 {
			t.Errorf("Reset: %v, mark %v", err, d.mark(t, "r"))
		}
		if len(records) != 1 || records[0].Mark != 9 {
			t.Errorf("records %+v", records)
		}
	})
}

func TestResetThatTheDatabaseRefusesFailsAndIsRecorded(t *testing.T) {
	d := newDatabase(t, kinds[0])
	var records []audit.Record
	keep := audit.Func(func(_ context.Context, r audit.Record) { records = append(records, r) })
	g := d.guard(t, nil)
	if err := g.Do(t.Context(), "r", holdfast.Token(7), d.write("r", 7, "")); err != nil {
		t.Fatal(err)
	}
	d.exec(t, "CREATE TRIGGER kept BEFORE DELETE ON holdfast_fence BEGIN SELECT RAISE(ABORT, 'kept'); END")
	err := g.Reset(deadline(t), "r", keep)
	if err == nil || errors.Is(err, context.DeadlineExceeded) || d.mark(t, "r") != 7 {
		t.Errorf("Reset: %v, mark %v", err, d.mark(t, "r"))
	}
	if len(records) != 1 || records[0].Err == nil {
		t.Errorf("records %+v", records)
	}
}
