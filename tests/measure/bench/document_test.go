package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRewriteCreatesAndUpdatesAFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "new.md")
	for _, text := range []string{"first\n", "second\n"} {
		if err := rewrite(name, text); err != nil {
			t.Fatal(err)
		}
		if got, want := mustRead(t, name), generatedBegin+text+generatedEnd; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestRewriteRejectsADocumentWithoutMarkers(t *testing.T) {
	for _, old := range []string{"another document\n", generatedBegin, generatedEnd, generatedEnd + generatedBegin} {
		name := filepath.Join(t.TempDir(), "doc.md")
		if err := os.WriteFile(name, []byte(old), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := rewrite(name, "figures"); err == nil || mustRead(t, name) != old {
			t.Errorf("%q was rewritten: %q, %v", old, mustRead(t, name), err)
		}
	}
}

func TestREADMEHasMarkers(t *testing.T) {
	name := filepath.Join(t.TempDir(), "performance.md")
	if err := os.WriteFile(name, []byte(mustRead(t, "README.md")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := rewrite(name, "figures"); err != nil {
		t.Error(err)
	}
}
