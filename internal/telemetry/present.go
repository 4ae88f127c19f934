package telemetry

import (
	"context"
	"reflect"
	"runtime/pprof"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// board knows what waits and what is held now, in all sessions that report to one MeterProvider: gauges of two sessions
// with the same attributes would replace each other. It is a list through the Acquisitions, so that it costs a lock
// no allocation, and it does something only when it is collected.
type board struct {
	mu    sync.Mutex // protects what follows, and the presence of each Acquisition
	first *Acquisition
}

// presence is an Acquisition's place on its board.
type presence struct {
	next, previous *Acquisition
	since          time.Time // it waits since it was asked for, and is held since it was granted
	holds          int       // 0: it waits; 2: of a lock that is being downgraded
	profiled       bool
}

// boards are those of open sessions, by their provider. The sessions of a provider that cannot be compared have one
// each.
var boards = struct {
	mu sync.Mutex
	of map[any]*openBoard
}{of: make(map[any]*openBoard)}

type openBoard struct {
	board
	sessions int
	callback metric.Registration
}

// open counts an open session. Its board reports as long as there is one.
func (t *Telemetry) open() {
	var key any = t
	if reflect.TypeOf(t.provider).Comparable() {
		key = t.provider
	}
	b, first := joinBoard(key)
	t.board = &b.board
	t.leave = sync.OnceFunc(func() { leaveBoard(key) })
	if !first {
		return
	}
	callback := b.register(t.provider.Meter(scope))
	boards.mu.Lock()
	b.callback = callback
	left := b.sessions == 0
	boards.mu.Unlock()
	if left {
		unregister(callback)
	}
}

func joinBoard(key any) (b *openBoard, first bool) {
	boards.mu.Lock()
	defer boards.mu.Unlock()
	b = boards.of[key]
	if first = b == nil; first {
		b = &openBoard{}
		boards.of[key] = b
	}
	b.sessions++
	return b, first
}

func leaveBoard(key any) {
	boards.mu.Lock()
	b := boards.of[key]
	b.sessions--
	last := b.sessions == 0
	if last {
		delete(boards.of, key)
	}
	callback := b.callback
	boards.mu.Unlock()
	if last {
		unregister(callback)
	}
}

func unregister(callback metric.Registration) {
	if callback == nil { // refused, or not registered yet
		return
	}
	if err := callback.Unregister(); err != nil {
		otel.Handle(err)
	}
}

// register has a meter observe the board.
func (b *board) register(m metric.Meter) metric.Registration {
	gauges := [2]struct {
		count   metric.Int64ObservableUpDownCounter
		longest metric.Float64ObservableGauge
	}{}
	gauges[0].count = orNothing(m.Int64ObservableUpDownCounter("holdfast.waiting", metric.WithUnit("{lock}"),
		metric.WithDescription("Calls that wait for a lock or a term now.")))
	gauges[0].longest = orNothing(m.Float64ObservableGauge("holdfast.waiting.longest", metric.WithUnit("s"),
		metric.WithDescription("For how long the longest of the present waits of this process lasts.")))
	gauges[1].count = orNothing(m.Int64ObservableUpDownCounter("holdfast.held", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks and terms that are held now.")))
	gauges[1].longest = orNothing(m.Float64ObservableGauge("holdfast.held.longest", metric.WithUnit("s"),
		metric.WithDescription("For how long the longest of the present holds of this process lasts.")))
	return orNothing(m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for i, groups := range b.count() {
			for _, g := range groups {
				o.ObserveInt64(gauges[i].count, g.count, metric.WithAttributeSet(g.attrs))
				o.ObserveFloat64(gauges[i].longest, g.longest.Seconds(), metric.WithAttributeSet(g.attrs))
			}
		}
		return nil
	}, gauges[0].count, gauges[0].longest, gauges[1].count, gauges[1].longest))
}

// group is what has the same attributes.
type group struct {
	attrs   attribute.Set
	count   int64
	longest time.Duration
}

// count returns what waits and what is held, by attributes.
func (b *board) count() (all [2]map[attribute.Distinct]*group) {
	all[0], all[1] = make(map[attribute.Distinct]*group), make(map[attribute.Distinct]*group)
	type one struct {
		attrs []attribute.KeyValue
		since time.Time
		held  bool
	}
	var present []one
	b.mu.Lock()
	for a := b.first; a != nil; a = a.next {
		present = append(present, one{a.attrs, a.since, a.holds > 0})
	}
	b.mu.Unlock()
	now := time.Now()
	for _, p := range present {
		set := attribute.NewSet(slices.Clone(p.attrs)...) // which sorts them
		groups := all[0]
		if p.held {
			groups = all[1]
		}
		g := groups[set.Equivalent()]
		if g == nil {
			g = &group{attrs: set}
			groups[set.Equivalent()] = g
		}
		g.count++
		g.longest = max(g.longest, now.Sub(p.since))
	}
	return all
}

// waits puts a on its board. A Telemetry that no session has opened has none.
func (a *Acquisition) waits() {
	b := a.t.board
	if b == nil {
		return
	}
	b.mu.Lock()
	a.since = a.asked
	if a.next = b.first; a.next != nil {
		a.next.previous = a
	}
	b.first = a
	b.mu.Unlock()
	if a.t.profile {
		profileWait(a)
		a.profiled = true
	}
}

// holdsNow says that the wait has ended.
func (a *Acquisition) holdsNow() {
	b := a.t.board
	if b == nil {
		return
	}
	b.mu.Lock()
	a.since, a.holds = time.Now(), 1
	b.mu.Unlock()
	if a.profiled {
		profile().Remove(a)
		profileHold(a)
	}
}

// GoesOn says that the lock is released once more: what is held in its place ends later.
func (a *Acquisition) GoesOn() {
	if a == nil || a.t.board == nil {
		return
	}
	a.t.board.mu.Lock()
	defer a.t.board.mu.Unlock()
	a.holds++
}

// ended takes a from its board.
func (a *Acquisition) ended() {
	b := a.t.board
	if b == nil {
		return
	}
	b.mu.Lock()
	if a.holds--; a.holds > 0 {
		b.mu.Unlock()
		return
	}
	if a.previous != nil {
		a.previous.next = a.next
	} else if b.first == a {
		b.first = a.next
	}
	if a.next != nil {
		a.next.previous = a.previous
	}
	a.next, a.previous = nil, nil
	b.mu.Unlock()
	if a.profiled {
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
