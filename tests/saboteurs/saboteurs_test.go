package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
		if _, err := s.overlay(root, t.TempDir()); err != nil {
			t.Errorf("%s: %v", s.name, err)
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

// Another one each day, since each has to be compiled.
func TestTheSaboteurOfTheDayIsNoticed(t *testing.T) {
	s := saboteurs[time.Now().YearDay()%len(saboteurs)]
	took, err := s.send(root)
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	t.Logf("%s was noticed by %s after %v", s.name, s.test, took)
}

func TestPatchThatDoesNotApplyIsAnError(t *testing.T) {
	if _, err := (saboteur{name: "none"}).overlay(root, t.TempDir()); err == nil {
		t.Error("a patch that does not exist was applied")
	}
}
