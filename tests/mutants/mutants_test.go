//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// want maps what is changed in the sample to what comes of it.
var want = map[string]string{
	"full | return n >= limit | n >= limit → n > limit":                                     noDiff,
	"full | return n >= limit | n >= limit → n < limit":                                     failed,
	"full | return n >= limit | n >= limit → true":                                          failed,
	"full | return n >= limit | n >= limit → false":                                         failed,
	"full | return n >= limit | limit → limit - 1":                                          failed,
	"same | func same(a, b string) bool { return a == b } | a == b → a != b":                failed,
	"same | func same(a, b string) bool { return a == b } | a == b → true":                  noDiff,
	"same | func same(a, b string) bool { return a == b } | a == b → false":                 failed,
	"both | if a && b { | a && b → a || b":                                                  failed,
	"both | if a && b { | a && b → true":                                                    failed,
	"both | if a && b { | a && b → false":                                                   failed,
	"both | if a && b { | a → true":                                                         noDiff,
	"both | if a && b { | b → true":                                                         failed,
	"both | return 1 | 1 → 1 + 1":                                                           failed,
	"both | return 1 | 1 → 1 - 1":                                                           failed,
	"both | return 0 | 0 → 0 + 1":                                                           failed,
	"both | return 0 | 0 → 0 - 1":                                                           failed,
	"counter.add | c.calls++ | c.calls++ → dropped":                                         failed,
	"counter.add | defer c.note() | defer c.note() → dropped":                               failed,
	"counter.add | if n < 0 { | n < 0 → true":                                               failed,
	"counter.add | if n < 0 { | n < 0 → false":                                              failed,
	"counter.add | if n < 0 { | n < 0 → n <= 0":                                             noDiff,
	"counter.add | if n < 0 { | n < 0 → n >= 0":                                             failed,
	"counter.add | if n < 0 { | 0 → 0 - 1":                                                  failed,
	"counter.add | c.n = 0 | c.n = 0 → dropped":                                             survived,
	"counter.add | c.n = 0 | 0 → 0 + 1":                                                     survived,
	"counter.add | c.n = 0 | 0 → 0 - 1":                                                     survived,
	`counter.add | return errors.New("negative") | return errors.New("negative") → dropped`: failed,
	"counter.add | c.n += n | c.n += n → dropped":                                           failed,
	"counter.note | func (c *counter) note() { c.calls += 10 } | c.calls += 10 → dropped":   failed,
	"counter.note | func (c *counter) note() { c.calls += 10 } | 10 → 10 + 1":               failed,
	"counter.note | func (c *counter) note() { c.calls += 10 } | 10 → 10 - 1":               failed,
	"pause | d := time.Second | time.Second → 2 * time.Second":                              survived,
	"pause | d := time.Second | time.Second → 0":                                            failed,
	"pause | if slow { | slow → true":                                                       failed,
	"pause | if slow { | slow → false":                                                      failed,
	"pause | return 2 * d | 2 → 2 + 1":                                                      survived,
	"pause | return 2 * d | 2 → 2 - 1":                                                      failed,
	"spin | for n > 0 { | n > 0 → false":                                                    failed,
	"spin | for n > 0 { | n > 0 → n >= 0":                                                   failed,
	"spin | for n > 0 { | n > 0 → n <= 0":                                                   failed,
	"spin | for n > 0 { | 0 → 0 + 1":                                                        failed,
	"spin | n-- | n-- → dropped":                                                            timedOut,
	"spin | sum++ | sum++ → dropped":                                                        failed,
	"notCalled | func notCalled(b bool) bool { return !b } | !b → true":                     notCovered,
	"notCalled | func notCalled(b bool) bool { return !b } | !b → false":                    notCovered,
}

func TestEachKindOfMutantIsJudgedByTheTestsThatCouldTell(t *testing.T) {
	t.Setenv("GOWORK", "off") // the sample is a module of its own
	o := options{
		root: filepath.Join("testdata", "sample"), record: filepath.Join(t.TempDir(), "record"),
		parallel: 2, limits: limits{budget: time.Minute, slow: time.Minute},
	}
	var out strings.Builder
	wrong, err := o.run(&out, []target{{pkg: "."}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(o.record)
	if err != nil {
		t.Fatal(err)
	}
	got, survivors := make(map[string]string), 0
	for line := range strings.Lines(string(text)) {
		var v verdict
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		if got[v.Key] = v.Outcome; !v.killed() {
			survivors++
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if got["sample.go | "+key] != want[key] {
			t.Errorf("%s:\n\t%q, want %q", key, got["sample.go | "+key], want[key])
		}
		delete(got, "sample.go | "+key)
	}
	for key, outcome := range got {
		t.Errorf("%s:\n\t%q, and no such mutant is expected", key, outcome)
	}
	if wrong != survivors {
		t.Errorf("%d lines need work, want one for each of %d survivors:\n%s", wrong, survivors, &out)
	}
}

func TestListOfSurvivorsIsHeldAgainstTheVerdicts(t *testing.T) {
	p := &pkg{name: "p"}
	var all []*mutant
	for _, change := range []string{"killed", "survives", "killed and explained", "survives and explained", "not judged"} {
		all = append(all, &mutant{pkg: p, file: "p/a.go", fn: "f", source: "x()", change: change})
	}
	var verdicts []verdict
	for i, m := range all[:4] {
		v := verdict{Key: m.key(), Outcome: failed, m: m}
		if i%2 == 1 {
			v.Outcome = survived
		}
		verdicts = append(verdicts, v)
	}
	explained := map[string]string{
		all[2].key(): "why", all[3].key(): "why", all[4].key(): "why", "p/a.go | f | gone() | gone() → dropped": "why",
	}
	var out strings.Builder
	if wrong := report(&out, verdicts, all, explained, time.Second); wrong != 3 {
		t.Errorf("%d lines need work, want 3", wrong)
	}
	for _, line := range []string{
		"survived, not explained (0 tests): p/a.go:0\n- p/a.go | f | x() | survives\n",
		"take it out of the list:\n- p/a.go | f | x() | killed and explained\n",
		"there is no such mutant any more:\n- p/a.go | f | gone() | gone() → dropped\n",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("the report has no %q:\n%s", line, &out)
		}
	}
}

func TestReasonsOfSurvivors(t *testing.T) {
	name := filepath.Join(t.TempDir(), "survivors.txt")
	for text, want := range map[string]map[string]string{
		"# title\n\nIt only changes\na pause.\n- a\n- b\n\nA text.\n- c\n": {
			"a": "It only changes a pause.", "b": "It only changes a pause.", "c": "A text.",
		},
		"- a\n":                nil,
		"Why.\n- a\n- a\n":     nil,
		"Why.\n\n- a\nB.\n- b": {"a": "Why.", "b": "B."},
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readExplained(name)
		if (err != nil) != (want == nil) || !maps.Equal(got, want) {
			t.Errorf("%q is read as %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestSampleIsDrawnByItsSeed(t *testing.T) {
	p := &pkg{name: "p"}
	f := &file{}
	for i := range 100 {
		m := &mutant{id: i + 1, pkg: p, file: "p/a.go", line: i, change: fmt.Sprint(i)}
		f.places = append(f.places, &place{mutants: []*mutant{m}})
	}
	p.files = []*file{f}
	draw := func(o options) (ids []int) {
		t.Helper()
		chosen, err := o.choose(&tree{pkgs: []*pkg{p}})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range chosen {
			ids = append(ids, m.id)
		}
		return ids
	}
	first := draw(options{sample: 10, seed: 1})
	if len(first) != 10 || !slices.IsSorted(first) || !slices.Equal(first, draw(options{sample: 10, seed: 1})) {
		t.Errorf("seed 1 draws %v, and then %v", first, draw(options{sample: 10, seed: 1}))
	}
	if slices.Equal(first, draw(options{sample: 10, seed: 2})) {
		t.Errorf("seeds 1 and 2 both draw %v", first)
	}
	if ids := draw(options{only: "p/a.go:7"}); !slices.Equal(ids, []int{8}) {
		t.Errorf("of line 7 it judges %v, want 8", ids)
	}
}
