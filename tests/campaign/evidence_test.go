//go:build linux

package main

import (
	"os"
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
