package sqlfence_test

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/audit"
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
