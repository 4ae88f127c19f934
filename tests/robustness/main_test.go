package robustness

import (
	"flag"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	"github.com/holdfast-go/holdfast/tests/internal/stalewriter"
)

// minParallel is the least number of parallel tests, whatever -parallel says: they spend
// most of their time waiting for leases to expire. More of them leave each too little of two processors.
const minParallel = 4

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, staleWriter) {
		child.Main(runStaleWriter)
	}
	if slices.Contains(os.Args, deaf) {
		child.Main(runDeaf)
	}
	if slices.Contains(os.Args, ticker) {
		child.Main(runTicker)
	}
	if slices.ContainsFunc(os.Args, stalewriter.IsName) {
		child.Main(writeUntilRefused)
	}
	child.Main(runChild)
	flag.Parse()
	parallel := flag.Lookup("test.parallel").Value
	if parallel.(flag.Getter).Get().(int) < minParallel {
		if err := parallel.Set(strconv.Itoa(minParallel)); err != nil {
			panic(err)
		}
	}
	leak.Main(m)
}
