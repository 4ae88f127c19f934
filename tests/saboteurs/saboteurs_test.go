package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

const root = "../.."

func TestMain(m *testing.M) { leak.Main(m) }

func find(name string) (saboteur, bool) {
	i := slices.IndexFunc(saboteurs, func(s saboteur) bool { return s.name == name })
	if i < 0 {
		return saboteur{}, false
	}
	return saboteurs[i], true
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A patch that no longer applies is to be made anew, or its rule is gone.
func TestEachSaboteurAppliesToThePresentCode(t *testing.T) {
	known := make(map[string]bool)
	for _, s := range saboteurs {
		if s.patch == "" {
			known[s.name+".patch"] = true
		}
		if of, ok := find(s.patch); s.patch != "" && (!ok || of.patch != "") {
			t.Errorf("%s: no saboteur has the patch %s", s.name, s.patch)
		}
		if _, err := s.overlay(root, t.TempDir()); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		if test, _, _ := strings.Cut(s.test, "/"); !hasTest(t, filepath.Join(root, s.dir), test) {
			t.Errorf("%s: there is no %s in %s", s.name, test, s.dir)
		}
	}
	files, err := os.ReadDir("patches")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !known[f.Name()] {
			t.Errorf("%s is in no list", f.Name())
		}
	}
}

// hasTest reports whether a package has that test.
func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "\nfunc "+name+"(")
	})
}

func TestPatchThatDoesNotApplyIsAnError(t *testing.T) {
	if _, err := (saboteur{name: "none"}).overlay(root, t.TempDir()); err == nil {
		t.Error("a patch that does not exist was applied")
	}
}

func TestReadmeHasEachSaboteurWithItsLastRun(t *testing.T) {
	_, table, _ := strings.Cut(read(t, readme), heading)
	table, _, _ = strings.Cut(table, "\n\n")
	runs := lastRuns(table)
	if want := tableOf(runs); table+"\n" != want {
		t.Errorf("README.md does not have the table as it is now: go run ./tests/saboteurs -record NAME\n%s", want)
	}
	for _, s := range saboteurs {
		if runs[s.name] == "" {
			t.Errorf("%s has never run: go run ./tests/saboteurs -record %s", s.name, s.name)
		}
		delete(runs, s.name)
	}
	for name := range runs {
		t.Errorf("README.md has %s, which is in no list", name)
	}
}

func TestEachInvariantHasASaboteur(t *testing.T) {
	has := make(map[string]bool)
	for _, i := range invariants {
		has[i.name] = false
	}
	for _, s := range saboteurs {
		if _, ok := has[s.invariant]; !ok && s.invariant != "" {
			t.Errorf("%s: there is no invariant %q", s.name, s.invariant)
		}
		has[s.invariant] = true
	}
	for name, ok := range has {
		if !ok {
			t.Errorf("no saboteur takes out a rule of %q", name)
		}
	}
}

func TestEachCommitDrawsOthersAndAllGetTheirTurn(t *testing.T) {
	first := draw(slices.Clone(saboteurs), 3, "a commit")
	if len(first) != 3 || first[0].name == first[1].name || first[1].name == first[2].name {
		t.Errorf("drew %v", first)
	}
	drawn := make(map[string]bool)
	for i := range 100 * len(saboteurs) {
		for _, s := range draw(slices.Clone(saboteurs), 3, time.Duration(i).String()) {
			drawn[s.name] = true
		}
	}
	if len(drawn) != len(saboteurs) {
		t.Errorf("%d of %d were ever drawn", len(drawn), len(saboteurs))
	}
}

func TestRecordKeepsTheLastRunsOfTheOthers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "README.md")
	text := "before\n\n" + heading + "| gone | | `gone` TestGone c0ffee0 |\n\nafter `as-it-is` TestAfter\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, commit := range []string{"c0ffee1", "c0ffee2"} {
		if err := record(file, saboteurs[i], commit); err != nil {
			t.Fatal(err)
		}
	}
	now, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"before\n\n" + heading + "| " + invariants[0].name + " | ",
		"| " + saboteurs[0].cell("c0ffee1") + "; " + saboteurs[1].cell("c0ffee2") + "; " + saboteurs[2].cell("") + "; ",
		saboteurs[len(saboteurs)-1].cell("") + " |\n\nafter `as-it-is` TestAfter\n",
	} {
		if !strings.Contains(string(now), want) {
			t.Errorf("%d: want %q in\n%s", i, want, now)
		}
	}
	if strings.Contains(string(now), "`gone`") {
		t.Error("a saboteur that is in no list is still there")
	}
}
