package main

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/tests/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// A row of README.md whose client no longer fails is to be marked so there; then the incident says so here, too.
func TestWhatFailedInPublicFailsAndHoldfastDoesNot(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range incidents {
		t.Run(i.name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(string(readme), "| `"+i.name+"` |") {
				t.Errorf("README.md has no row of it")
			}
			theirs, ours, err := i.run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %v", i.other, theirs)
			t.Logf("holdfast: %v", ours)
			if !theirs.failed {
				t.Errorf("%s does not fail any more: mark its row in README.md", i.other)
			}
			if ours.failed {
				t.Errorf("holdfast failed")
			}
		})
	}
}

func TestUnknownIncidentIsRefused(t *testing.T) {
	var out strings.Builder
	code := command(context.Background(), []string{"nothing"}, &out)
	if code != 2 || !strings.Contains(out.String(), `"nothing"`) {
		t.Errorf("%d: %s", code, out.String())
	}
}
