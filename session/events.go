package session

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/callback"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
)

// Event is one change of a session's state.
type Event struct {
	State    holdfast.State   // the state entered
	Previous holdfast.State   // the state left
	Lease    clientv3.LeaseID // the lease it is about; after a loss, Connected has a new one
	At       time.Time        // wall clock, for display
	Err      error            // Lost: the *holdfast.LostError; Suspended: why no renewal is confirmed
}

// Reconnected reports whether the same lease was confirmed again, so nothing was lost.
func (e Event) Reconnected() bool {
	return e.State == holdfast.Connected && e.Previous == holdfast.Suspended
}

// events tells the subscribers, of which the log is one, and the metrics of each state that the session enters.
type events struct {
	*env

	mu   sync.Mutex               // protects what follows
	told holdfast.State           // of the last event
	subs map[*subscriber]struct{} // after Closed, which is the last event, nothing calls them
}

// subscriber is one callback and the events that wait for it.
type subscriber struct {
	fn    func(Event)
	name  string // of fn, for messages
	queue callback.Calls
}

// Subscribe calls fn for every change of state from now on, one at a time, in order, on its own goroutine. A slow fn
// delays nothing else, and misses none. A panic in fn is recovered and logged. After cancel no further call begins;
// cancel does not wait.
func (s *Session) Subscribe(fn func(Event)) (cancel func()) {
	if fn == nil {
		return func() {}
	}
	es, sub := s.events, &subscriber{fn: fn, name: callback.Name(fn)}
	es.mu.Lock()
	defer es.mu.Unlock()
	// Canceled subscribers are forgotten once their last call has returned: Close joins it.
	maps.DeleteFunc(es.subs, func(old *subscriber, _ struct{}) bool { return old.queue.Ended() })
	es.subs[sub] = struct{}{}
	return sub.queue.Stop
}

// publish tells everyone that the session has entered a state.
func (es *events) publish(ev Event) {
	ev.At = time.Now()
	es.mu.Lock()
	previous := es.told
	if previous == holdfast.Closed { // a loss or a new lease was found in the same moment; Closed is the last event
		es.mu.Unlock()
		return
	}
	es.told = ev.State
	for sub := range es.subs {
		sub.queue.Add(callback.Call{Callback: sub.name, Log: es.Logger, Run: func() { sub.fn(ev) }})
	}
	es.mu.Unlock()
	es.Telemetry.State(previous, ev.State)
}

// log writes one line for each change of state but the close.
func (es *events) log(ev Event) {
	log := es.Logger.With("lease", names.Lease(ev.Lease))
	err := ev.Err
	var attrs []any
	if lost := (*holdfast.LostError)(nil); errors.As(err, &lost) {
		// The text of the error would repeat the other attributes.
		attrs = append(attrs, "cause", lost.Cause.String(), "since_last_renewal", lost.Since)
		err = lost.Err
	}
	if err != nil {
		attrs = append(attrs, "error", err)
	}
	switch {
	case ev.State == holdfast.Suspended:
		log.Warn("holdfast: session suspended", attrs...)
	case ev.Reconnected():
		log.Info("holdfast: session reconnected, nothing was lost", attrs...)
	case ev.State == holdfast.Connected:
		log.Info("holdfast: session has a new lease", attrs...)
	case ev.State == holdfast.Lost:
		log.Warn("holdfast: session lost", attrs...)
	}
}

// lost publishes the loss of l. last is the state before.
func (es *events) lost(l *lease.Lease, last holdfast.State) {
	lost := l.Lost()
	es.publish(Event{State: holdfast.Lost, Previous: last, Lease: l.ID(), Err: lost})
	es.Telemetry.SessionLost(lost.Cause.String(), lost.Since)
}

// wait waits for the callbacks until ctx ends.
func (es *events) wait(ctx context.Context) {
	for _, sub := range es.subscribers() {
		waitFor(sub.queue.Idle(), ctx)
	}
}

// stuck names the callbacks that have not returned.
func (es *events) stuck() (names []string) {
	for _, sub := range es.subscribers() {
		if !isClosed(sub.queue.Idle()) {
			names = append(names, sub.name)
		}
	}
	return names
}

func (es *events) subscribers() []*subscriber {
	es.mu.Lock()
	defer es.mu.Unlock()
	return slices.Collect(maps.Keys(es.subs))
}
