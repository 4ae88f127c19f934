package modeltrace

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/tests/models/modelsearch"
)

var (
	traces = flag.Int("model.traces", 100, "runs of the code that are compared with the model")
	first  = flag.Uint64("model.seed", 1, "seed of the first of them")
)

// Compare records runs and has a model refuse them, which is an error. A run costs as much time as so many of the
// others. record reports false for a run that the model cannot be compared with; refused is Model.Refused.
func Compare[E any](t *testing.T, costs int,
	record func(t *testing.T, seed uint64) ([]E, bool), refused func(events []E, seed uint64) (wrong string, most int),
) {
	t.Helper()
	count := max(1, *traces/costs)
	if modelsearch.Race {
		count = min(count, 20)
	}
	followed, most, steps := 0, 0, 0
	for i := range uint64(count) {
		seed := *first + i
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			events, ok := record(t, seed)
			if !ok {
				return
			}
			wrong, states := refused(events, seed)
			if wrong != "" {
				t.Error(wrong)
			}
			if most = max(most, states); states <= MostStates {
				followed, steps = followed+1, steps+len(events)
			}
		})
	}
	t.Logf("%d of %d runs followed, %d events, at most %d states at once", followed, count, steps, most)
	if followed < count*9/10 {
		t.Errorf("only %d of %d runs were followed", followed, count)
	}
}

// UpTo draws a duration up to one of some limits.
func UpTo(r *rand.Rand, limits ...time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(limits[r.IntN(len(limits))]))) + time.Microsecond
}
