package main

import (
	"strings"
	"testing"
)

// odd are results as no machine should give them.
func odd() []result {
	of := func(values ...float64) series { return series{took: values} }
	return []result{
		{subject: subject{name: "a|b", what: "<script> & `code` | more", short: "<script> & `code`"}, size: 1, sides: map[string]series{"holdfast": of(2e6, 1e6, 4e6), "upstream": of(100e6, 100e6, 100e6), "floor": of(1e6, 1e6, 1e6)}},
		{subject: subject{name: "missing"}, size: 1, sides: map[string]series{"floor": of(5)}},
		{subject: subject{name: "nothing"}, size: 3, sides: map[string]series{}},
		{subject: subject{name: "zero", short: "zero"}, size: 1, sides: map[string]series{"holdfast": of(0, 0), "upstream": of(1, 1)}},
		{subject: subject{name: "nought", what: "nought upstream", short: "nought upstream"}, size: 1, sides: map[string]series{"holdfast": of(1, 1), "upstream": of(0, 0)}},
		{subject: subject{name: "huge", what: "huge", short: "huge"}, size: 3, sides: map[string]series{"holdfast": of(1e-3), "upstream": of(1e300), "floor": of(1e12)}},
		{subject: subject{name: "huge", what: "huge", short: "huge"}, size: 5, sides: map[string]series{"holdfast": of(3)}},
		{subject: subject{name: "alone", alone: true}, sides: map[string]series{"holdfast": {took: []float64{1500}, allocs: []float64{12.2, 11.6}}}},
	}
}

func TestTableHandlesMissingZeroAndHugeValues(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(table(odd())), "\n")
	want := []string{
		"| 1 | &lt;script&gt; &amp; 'code' \\| more<br>`a\\|b` | 2.00 ms (1.00–4.00) | 100 ms (100–100) | 1.00 ms (1.00–1.00) | 50.0 (25.0–100) | 2.00 (1.00–4.00) |",
		"| 1 | <br>`missing` | – | – | 5.00 ns (5.00–5.00) | – | – |",
		"| 3 | <br>`nothing` | – | – | – | – | – |",
		"| 1 | <br>`zero` | 0.00 ns (0.00–0.00) | 1.00 ns (1.00–1.00) | – | – | – |",
		"| 1 | nought upstream<br>`nought` | 1.00 ns (1.00–1.00) | 0.00 ns (0.00–0.00) | – | 0.00 (0.00–0.00) | – |",
		"| 3 | huge<br>`huge` | 0.001 ns (0.001–0.001) | 1e+291 s (1e+291–1e+291) | 1000 s (1000–1000) | 1e+303 (1e+303–1e+303) | 1e-15 (1e-15–1e-15) |",
		"| 5 | `huge` | 3.00 ns (3.00–3.00) | – | – | – | – |",
		"| none | <br>`alone` | 1.50 µs (1.50–1.50), 12 allocations | – | – | – | – |",
	}
	if len(lines) != len(want)+2 {
		t.Fatalf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	for i, line := range lines {
		if n := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|"); n != 8 {
			t.Errorf("%d bars in %s", n, line)
		}
		if i >= 2 && line != want[i-2] {
			t.Errorf("line %d is\n%s\nwant\n%s", i, line, want[i-2])
		}
	}
}

func TestChartHandlesMissingZeroAndHugeValues(t *testing.T) {
	drawn := texts(t, chart(odd())) // well-formed, all on the canvas
	for _, want := range []string{"<script> & `code`", "50.0 ×", "nought upstream", "0.00 ×", "huge", "1e+303 ×", "1 member", "3 members"} {
		if !drawn[want] {
			t.Errorf("the chart lacks %q: %v", want, drawn)
		}
	}
	for text := range drawn {
		if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
			t.Errorf("the chart says %q", text)
		}
	}
	if !texts(t, chart(nil))["1 member"] {
		t.Error("a chart of nothing has no legend")
	}
}

func TestRatiosArePairedRoundByRound(t *testing.T) {
	// The machine was ten times as slow in the second round, on both sides.
	got := ratio(series{took: []float64{10, 200, 30}}, series{took: []float64{5, 100, 10}})
	if want := (spread{n: 3, median: 2, lowest: 2, highest: 3}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if got := spreadOf([]float64{4, 1, 3, 2}); got.median != 2.5 || got.lowest != 1 || got.highest != 4 {
		t.Errorf("%v", got)
	}
}
