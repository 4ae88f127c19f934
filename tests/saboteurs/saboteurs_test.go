package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/leak"
)

const root = "../.."

func TestMain(m *testing.M) { leak.Main(m) }

// A patch that no longer applies is to be made anew, or its rule is gone.
func TestEachSaboteurAppliesToThePresentCode(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]bool)
	for _, s := range saboteurs {
		known[s.name+".patch"] = true
		dir := t.TempDir()
		if _, err := s.overlay(root, dir); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		if !hasTest(t, filepath.Join(root, s.dir), s.test) {
			t.Errorf("%s: there is no %s in %s", s.name, s.test, s.dir)
		}
		if !strings.Contains(string(readme), "| `"+s.name+"` |") {
			t.Errorf("README.md is without %s", s.name)
		}
	}
	files, err := os.ReadDir("patches")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !known[filepath.Base(f.Name())] {
			t.Errorf("%s is in no list", f.Name())
		}
	}
}

// hasTest reports whether a package has tests whose names begin so.
func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "\nfunc "+name)
	})
}

func TestPatchThatDoesNotApplyIsAnError(t *testing.T) {
	if _, err := (saboteur{name: "none"}).overlay(root, t.TempDir()); err == nil {
		t.Error("a patch that does not exist was applied")
	}
}
