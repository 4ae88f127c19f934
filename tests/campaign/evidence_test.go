//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEvidenceSaysWhatItsRecordsSay(t *testing.T) {
	tables, err := evidence("../../docs/evidence")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../docs/evidence.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), tables) {
		t.Errorf("docs/evidence.md is without these tables, of go run ./tests/campaign -evidence docs/evidence:\n%s",
			tables)
	}
}

// recordsIn writes a verdict, if there is one, and summaries with a violation and a newcomer each, by file.
func recordsIn(t *testing.T, verdicts string, change map[string]func(*summary)) (dir string) {
	t.Helper()
	dir = t.TempDir()
	write := func(file string, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if verdicts != "" {
		write(verdictsFile, []byte(verdicts))
	}
	for file, change := range change {
		fsync := true
		s := &summary{Etcd: "3.7.3", Holdfast: "0123456789ab", Hours: 0.5, Fsync: &fsync, Members: 3,
			Violations: []string{"two held"}, OfMachine: []string{"late"}}
		s.Denominators.Revoked, s.Denominators.AfterRevocation = 3, 2
		change(s)
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		write(file, text)
	}
	return dir
}

func TestEvidenceSumsTheRunsThatCountAndSortsTheirViolations(t *testing.T) {
	const verdicts = `[{"Record": "a.json", "Violation": "two held", "Of": "judge", "Why": "a test"}]`
	dir := recordsIn(t, verdicts, map[string]func(*summary){
		"a.json": func(*summary) {}, // as older records: its newcomers are not counted by kind
		"b.json": func(s *summary) {
			*s.Fsync, s.Denominators.Newcomers = false, map[string]newcomersOf{"set": {2, 0}, "permit": {3, 1}}
		},
		"d.json": func(s *summary) { s.Denominators.Newcomers = map[string]newcomersOf{"permit": {4, 0}} },
		"c.json": func(s *summary) { s.Fsync = nil },
	})
	tables, err := evidence(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| 3.7.3 | 3 | yes | 0 | 0123456789ab | 0.50 | 0 | 0 | 0 | 0 | 1 | 1 | 0 | [a](evidence/a.json) |",
		"| 3.7.3 | 3 | no | 0 | 0123456789ab | 0.50 | 0 | 0 | 0 | 0 | 0 | 1 | 1 | [b](evidence/b.json) |",
		"| in all | | | | 3 runs | 1.50 | 0 | 0 | 0 | 0 | 1 | 3 | 2 | |",
		"| such newcomers, by kind | permit 7, two held 1 times; set 2, two held 0 times |",
		"| leases revoked by hand, and a newcomer | 9 holds, 6 of them with a newcomer within 200 ms, two held 0 times |",
	} {
		if !strings.Contains(tables, want) {
			t.Errorf("the tables are without %q:\n%s", want, tables)
		}
	}
	if strings.Contains(tables, "c.json") {
		t.Errorf("a record counts that does not say whether members waited for the disk:\n%s", tables)
	}
	old, err := older(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a.json (0123456789ab) is of a commit that", "b.json (", "c.json does not count"} {
		if !strings.Contains(strings.Join(old, "\n"), want) {
			t.Errorf("what is older is without %q: %q", want, old)
		}
	}
}

func TestRecordsThatProveNothingAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		verdicts string
		change   func(*summary)
		want     string
	}{
		"a verdict on what is not there": {`[{"Record": "a.json", "Violation": "no", "Of": "judge", "Why": "a"}]`,
			func(*summary) {}, "has the violation"},
		"a verdict without a reason": {`[{"Record": "a.json", "Violation": "two held", "Of": "judge"}]`, func(*summary) {},
			"it needs a reason"},
		"a full run with few newcomers": {"", func(s *summary) { s.Hours = 1 }, "needs 1000 newcomers"},
		"a round that was not kept":     {"", func(s *summary) { s.Kept = []string{"seed1-round1"} }, "a round that it kept"},
	} {
		dir := recordsIn(t, c.verdicts, map[string]func(*summary){"a.json": c.change})
		if _, err := evidence(dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestEngineIsWhatLocksElectionsShardsAndFencesNeed(t *testing.T) {
	_, files, err := engineFiles()
	if err != nil {
		t.Fatal(err)
	}
	all := " " + strings.Join(files, " ") + " "
	for _, want := range []string{"locker/mutex.go", "session/session.go", "internal/layout/", "fencing/httpfence/"} {
		if !strings.Contains(all, " "+want) {
			t.Errorf("the engine is without %s:%s", want, all)
		}
	}
	for _, not := range []string{"tests/", "etcdfake/", "_test.go"} {
		if strings.Contains(all, not) {
			t.Errorf("the engine has %s:%s", not, all)
		}
	}
	present, err := presentEngine()
	if err != nil {
		t.Fatal(err)
	}
	if how := present.differs("HEAD"); how != "" {
		t.Errorf("HEAD %s", how)
	}
	if how := present.differs("0123456789ab, with changes"); !strings.Contains(how, "no commit has") {
		t.Errorf("a run with changes: %q", how)
	}
}

func TestCommentIsNoOtherEngine(t *testing.T) {
	const before = "//go:build unix\n\npackage p\n\n// f returns 1.\nfunc f() int { return 1 }\n"
	for change, same := range map[[2]string]bool{
		{"f returns 1", "f returns one"}:     true,
		{"{ return", "{ /* it */\n\treturn"}: true,
		{"return 1", "return 2"}:             false,
		{"//go:build unix\n", ""}:            false,
	} {
		after := strings.Replace(before, change[0], change[1], 1)
		if got := slices.Equal(codeOf(before), codeOf(after)); got != same {
			t.Errorf("%q for %q: the same code: %t, want %t", change[1], change[0], got, same)
		}
	}
}
