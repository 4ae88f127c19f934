package robustness

import (
	"flag"
	"os"
	"slices"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/child"
)

// sideBySide is how many tests run side by side at least, where -parallel does not
// ask for more: they spend most of their time waiting for leases to expire.
const sideBySide = 6

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, staleWriter) {
		child.Main(runStaleWriter)
	}
	child.Main(runChild)
	flag.Parse()
	parallel := flag.Lookup("test.parallel").Value
	if parallel.(flag.Getter).Get().(int) < sideBySide {
		if err := parallel.Set(strconv.Itoa(sideBySide)); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}
