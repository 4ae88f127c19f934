package main

import (
	"strings"
	"testing"
)

// extremeResults returns results with missing, zero and huge values, and with text that needs escaping.
func extremeResults() []result {
	of := func(values ...float64) series { return series{took: values} }
	return []result{
		{subject: subject{name: "a|b", what: "<script> & `code` | more", short: "<script> & `code`"}, size: 1,
			sides: map[string]series{"holdfast": of(2e6, 1e6, 4e6), "upstream": of(100e6, 100e6, 100e6),
				"floor": of(1e6, 1e6, 1e6)}},
		{subject: subject{name: "missing"}, size: 1, sides: map[string]series{"floor": of(5)}},
		{subject: subject{name: "nothing"}, size: 3, sides: map[string]series{}},
		{subject: subject{name: "zero", short: "zero"}, size: 1, sides: map[string]series{"holdfast": of(0, 0),
			"upstream": of(1, 1)}},
		{subject: subject{name: "nought", what: "nought upstream", short: "nought upstream"}, size: 1,
			sides: map[string]series{"holdfast": of(1, 1), "upstream": of(0, 0)}},
		{subject: subject{name: "huge", what: "huge", short: "huge"}, size: 3,
			sides: map[string]series{"holdfast": of(1e-3), "upstream": of(1e300), "floor": of(1e12)}},
		{subject: subject{name: "huge", what: "huge", short: "huge"}, size: 5, sides: map[string]series{"holdfast": of(3)}},
		{subject: subject{name: "alone", clientOnly: true},
			sides: map[string]series{"holdfast": {took: []float64{1500}, allocs: []float64{12.2, 11.6}}}},
	}
}

func TestTableHandlesMissingZeroAndHugeValues(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(table(extremeResults())), "\n")
	want := []string{
		"| &lt;script&gt; &amp; 'code' \\| more<br>`a\\|b` | 1 | 2.00 ms | 100 ms | 1.00 ms " +
			"| 50.0 (25.0–100) | 2.00 (1.00–4.00) |",
		"| <br>`missing` | 1 | – | – | 5.00 ns | – | – |",
		"| <br>`nothing` | 3 | – | – | – | – | – |",
		"| <br>`zero` | 1 | 0.00 ns | 1.00 ns | – | – | – |",
		"| nought upstream<br>`nought` | 1 | 1.00 ns | 0.00 ns | – | 0.00 (0.00–0.00) | – |",
		"| huge<br>`huge` | 3; 5 | 0.001 ns; 3.00 ns | 1e+291 s; – | 1000 s; – " +
			"| 1e+303 (1e+303–1e+303); – | 1e-15 (1e-15–1e-15); – |",
		"| <br>`alone` | none | 1.50 µs, 12 allocations | – | – | – | – |",
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
