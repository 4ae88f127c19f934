package telemetry

import (
	"context"
	"runtime/pprof"
	"sync"

	"go.opentelemetry.io/otel/metric"
)

// GoesOn notes that Released or Lost will be called once more: a downgraded lock ends as a writer and as a reader.
func (a *Acquisition) GoesOn() {
	if a == nil {
		return
	}
	if a.counted != nil {
		a.t.present.held.Add(context.Background(), 1, a.counted)
	}
	if a.profiled != nil {
		a.profiled.Add(1)
	}
}

// ended counts one less in counter: of what waits, or of what is held.
func (a *Acquisition) ended(counter metric.Int64UpDownCounter) {
	if a.counted != nil {
		counter.Add(context.Background(), -1, a.counted)
	}
	if a.profiled != nil && a.profiled.Add(-1) <= 0 {
		profile().Remove(a)
	}
}

// profile is the profile "holdfast" of runtime/pprof.
var profile = sync.OnceValue(func() *pprof.Profile {
	if p := pprof.Lookup("holdfast"); p != nil {
		return p
	}
	return pprof.NewProfile("holdfast")
})

// The stack of a wait begins with profileWait, that of a hold with profileHold.

//go:noinline
func profileWait(a *Acquisition) { profile().Add(a, 0) }

//go:noinline
func profileHold(a *Acquisition) { profile().Add(a, 0) }
