package robustness

import (
	"os"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
)

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, staleWriter) {
		child.Main(runStaleWriter)
	}
	if slices.Contains(os.Args, ticker) {
		child.Main(runTicker)
	}
	child.Main(runChild)
	testkit.Parallel(6)
	leak.Main(m)
}
