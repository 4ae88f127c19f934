package session

import (
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/callback"
)

// Event is one change of a session's state.
type Event struct {
	State    holdfast.State   // the state entered
	Previous holdfast.State   // the state left
	Lease    clientv3.LeaseID // the lease it is about; after a loss, Connected has a new one
	At       time.Time        // wall clock, for display
	Err      error            // Lost: the *holdfast.LostError; Suspended: why the last renewal failed, may be nil
}

// Reconnected reports whether the same lease was confirmed again: nothing was lost.
func (e Event) Reconnected() bool {
	return e.State == holdfast.Connected && e.Previous == holdfast.Suspended
}

// terminal reports whether the event ends a lease or the session.
func (e Event) terminal() bool { return e.State == holdfast.Lost || e.State == holdfast.Closed }

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
	sub := &subscriber{fn: fn, name: callback.Name(fn)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return func() {}
	}
	s.subs[sub] = struct{}{}
	return func() {
		sub.queue.Stop()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pruneLocked()
	}
}

// pruneLocked forgets canceled subscribers, except those whose last call is
// still running: Close joins it.
func (s *Session) pruneLocked() {
	for sub := range s.subs {
		if sub.queue.Ended() {
			delete(s.subs, sub)
		}
	}
}

// publish tells the subscribers, the log and the metrics that the session has
// entered a state. After Closed there are no further events, although a loss or
// a new lease may be found in the same moment.
func (s *Session) publish(ev Event) {
	ev.At = time.Now()
	state := ev.State.String()
	s.mu.Lock()
	previous := s.told
	if previous == holdfast.Closed {
		s.mu.Unlock()
		return
	}
	s.told = ev.State
	s.pruneLocked()
	for sub := range s.subs {
		sub.queue.Add(callback.Call{
			Callback: sub.name, Event: state, Log: s.opts.Logger,
			Run: func() { sub.fn(ev) }, Droppable: !ev.terminal(),
		})
	}
	s.mu.Unlock()
	s.logEvent(ev)
	s.telemetry.State(stateLabel(previous), stateLabel(ev.State))
}

// logEvent writes one line for each change of state but the close.
func (s *Session) logEvent(ev Event) {
	log := s.opts.Logger.With("lease", holdfast.LeaseID(ev.Lease).String())
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

// stateLabel is the state under which an open session is counted; "" for a closed
// one, which is not counted.
func stateLabel(s holdfast.State) string {
	if s == holdfast.Closed {
		return ""
	}
	return s.String()
}

func (s *Session) subscribers() []*subscriber {
	s.mu.Lock()
	defer s.mu.Unlock()
	subs := make([]*subscriber, 0, len(s.subs))
	for sub := range s.subs {
		subs = append(subs, sub)
	}
	return subs
}
