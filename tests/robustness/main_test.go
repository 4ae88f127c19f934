package robustness

import (
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/child"
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
	goleak.VerifyTestMain(m)
}
