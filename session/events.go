package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	Err      error            // Lost: the *holdfast.LostError; Suspended: why the last renewal failed, may be nil

	roundTrip time.Duration // Suspended: what renewals take, if that is why; otherwise 0
}

// Reconnected reports whether the same lease was confirmed again: nothing was lost.
func (e Event) Reconnected() bool {
	return e.State == holdfast.Connected && e.Previous == holdfast.Suspended
}

// terminal reports whether the event ends a lease or the session.
func (e Event) terminal() bool { return e.State == holdfast.Lost || e.State == holdfast.Closed }

// events tells the subscribers, the log and the metrics which states the session enters.
type events struct {
	*env
	slow bool // the log says that round trips are too long; only the keeper's goroutine uses it

	mu   sync.Mutex               // protects what follows
	told holdfast.State           // of the last event
	subs map[*subscriber]struct{} // after Closed, which is the last event, nothing calls them
}

// subscriber is one callback and the events that wait for it.
type subscriber struct {
	fn    func(Event)
	name  string // of fn, for messages
	queue callback.Queue
}

// Subscribe calls fn for every change of state from now on, one at a time, in order, on its own goroutine. A slow
// fn delays nothing else; beyond 64 waiting events the oldest is dropped that is neither a loss nor the close. A panic
// in fn is recovered and logged. After cancel no further call begins; cancel does not wait.
func (s *Session) Subscribe(fn func(Event)) (cancel func()) {
	if fn == nil {
		return func() {}
	}
	return s.events.subscribe(fn)
}

func (es *events) subscribe(fn func(Event)) (cancel func()) {
	sub := &subscriber{fn: fn, name: callback.Name(fn)}
	es.mu.Lock()
	defer es.mu.Unlock()
	es.subs[sub] = struct{}{}
	return func() {
		sub.queue.Stop()
		es.mu.Lock()
		defer es.mu.Unlock()
		es.pruneLocked()
	}
}

// pruneLocked forgets canceled subscribers, except those whose last call is still running: Close joins it.
func (es *events) pruneLocked() {
	for sub := range es.subs {
		if sub.queue.Ended() {
			delete(es.subs, sub)
		}
	}
}

// publish tells that the session has entered a state. After Closed there are no further events, although a loss or a
// new lease may be found in the same moment.
func (es *events) publish(ev Event) {
	ev.At = time.Now()
	state := ev.State.String()
	es.mu.Lock()
	previous := es.told
	if previous == holdfast.Closed {
		es.mu.Unlock()
		return
	}
	es.told = ev.State
	es.pruneLocked()
	for sub := range es.subs {
		sub.queue.Add(callback.Call{
			Callback: sub.name, Event: state, Log: es.opts.Logger,
			Run: func() { sub.fn(ev) }, Droppable: !ev.terminal(),
		})
	}
	es.mu.Unlock()
	es.log(ev)
	es.telemetry.State(stateLabel(previous), stateLabel(ev.State))
}

// log writes one line for each change of state but the close.
func (es *events) log(ev Event) {
	log := es.opts.Logger.With("lease", names.Lease(ev.Lease))
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
		es.logSuspended(log.With(attrs...), ev.roundTrip)
	case ev.Reconnected():
		level := slog.LevelInfo
		if es.slow {
			level = slog.LevelDebug
		}
		log.Log(context.Background(), level, "holdfast: session reconnected, nothing was lost", attrs...)
	case ev.State == holdfast.Connected:
		log.Info("holdfast: session has a new lease", attrs...)
	case ev.State == holdfast.Lost:
		log.Warn("holdfast: session lost", attrs...)
	}
}

// logSuspended writes the line for a suspension. Round trips that are too long suspend the session at each renewal, so
// the first such suspension is a warning that says what to do, and the next ones are for debugging.
func (es *events) logSuspended(log *slog.Logger, tooLong time.Duration) {
	known := es.slow
	es.slow = tooLong > 0
	switch {
	case !es.slow:
		log.Warn("holdfast: session suspended")
	case !known:
		log.Warn(fmt.Sprintf("holdfast: session suspended: round trips to etcd take more than a quarter of the time for "+
			"which a renewal is trusted, so this will happen at each of them; choose a TTL of at least %v",
			lease.TTLFor(tooLong)),
			"round_trip", tooLong, "ttl", es.opts.TTL)
	default:
		log.Debug("holdfast: session suspended", "round_trip", tooLong, "ttl", es.opts.TTL)
	}
}

// stateLabel is the state under which an open session is counted; "" for a closed one, which is not counted.
func stateLabel(s holdfast.State) string {
	if s == holdfast.Closed {
		return ""
	}
	return s.String()
}

// lost publishes the loss of l, whose state was last.
func (es *events) lost(l *lease.Lease, last holdfast.State) {
	lost := l.Lost()
	es.publish(Event{State: holdfast.Lost, Previous: last, Lease: l.ID(), Err: lost})
	es.telemetry.SessionLost(lost.Cause.String(), lost.Since)
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
		select {
		case <-sub.queue.Idle():
		default:
			names = append(names, sub.name)
		}
	}
	return names
}

func (es *events) subscribers() []*subscriber {
	es.mu.Lock()
	defer es.mu.Unlock()
	subs := make([]*subscriber, 0, len(es.subs))
	for sub := range es.subs {
		subs = append(subs, sub)
	}
	return subs
}
