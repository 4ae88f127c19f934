package telemetry

import (
	"context"
	"runtime/pprof"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/metric"
)

// waits counts a from now on as one that waits. If nothing collects that now, nothing of a is counted later: a counter
// that goes up and down must not go down alone. Attributes cost allocations, so they are made here, once.
func (a *Acquisition) waits() {
	if isCollected(a.t.present.waiting) {
		a.counted = metric.WithAttributes(a.attrs...)
	}
	a.count(a.t.present.waiting, 1)
	if a.t.profile {
		a.profiled = new(atomic.Int32)
		profileWait(a)
	}
}

// holds counts a from now on as one that holds.
func (a *Acquisition) holds() {
	a.count(a.t.present.waiting, -1)
	a.count(a.t.present.held, 1)
	if a.profiled != nil {
		a.profiled.Store(1)
		profile().Remove(a)
		profileHold(a)
	}
}

// GoesOn notes that Released or Lost will be called once more: a downgraded lock ends as a writer and as a reader.
func (a *Acquisition) GoesOn() {
	if a == nil {
		return
	}
	a.count(a.t.present.held, 1)
	if a.profiled != nil {
		a.profiled.Add(1)
	}
}

// ended counts one less in counter: of what waits, or of what is held.
func (a *Acquisition) ended(counter metric.Int64UpDownCounter) {
	a.count(counter, -1)
	if a.profiled != nil && a.profiled.Add(-1) <= 0 {
		profile().Remove(a)
	}
}

// count adds n to counter, if a is counted.
func (a *Acquisition) count(counter metric.Int64UpDownCounter, n int64) {
	if a.counted != nil {
		counter.Add(context.Background(), n, a.counted)
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
