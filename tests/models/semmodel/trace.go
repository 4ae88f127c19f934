package semmodel

import (
	"fmt"

	"github.com/holdfast-go/holdfast/tests/models/modelsearch"
	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
)

// Traces: package modeltrace says how a run is compared with the model. Revisions are not renumbered then: revision n+1
// is that of the n-th event that changes the store.

// An action is what a step of the model is seen as.
type action int8

const (
	unseen  action = iota // nothing tells of the step
	puts                  // a permit is put
	marks                 // a permit is marked
	removes               // a permit is deleted, and its session key stands
	revokes               // a lease ends: its permit and its session key are deleted
	resizes               // the limit is changed
	judged                // an attempt knows its place, or that the lock delay begins
	waited                // an attempt has waited for its lock delay
	holds                 // an attempt holds
	told                  // a session knows that its lease is lost
	ended                 // all calls have returned, and everything is removed
	happens               // what others do in the store: see follow.go
)

// An event is one of a run.
type event struct {
	action action
	actor  int8     // an attempt; of told and of what changes a permit: a lease
	mark   revision // of marks

	// Of judged. ahead: the permit that the attempt is far behind, 0 if it is not far. first: it is the first waiter.
	ahead  revision
	first  bool
	delays bool // the lock delay begins
	cut    bool // it does, because history is compacted

	limit, high int8 // of resizes

	happen *happening
}

func (e event) String() string {
	switch e.action {
	case puts:
		return fmt.Sprintf("etcd: the permit on lease %d is put", e.actor)
	case removes:
		return fmt.Sprintf("etcd: the permit on lease %d is deleted", e.actor)
	case marks:
		return fmt.Sprintf("etcd: the permit on lease %d is marked with %d", e.actor, e.mark)
	case revokes:
		return fmt.Sprintf("etcd: lease %d ends", e.actor)
	case resizes:
		return fmt.Sprintf("etcd: the limit is %d, the highest %d", e.limit, e.high)
	case judged:
		place, delay := "it has room", ""
		switch {
		case e.first:
			place = "it is the first waiter"
		case e.ahead != 0:
			place = fmt.Sprintf("it is far behind permit %d", e.ahead)
		}
		switch {
		case e.cut:
			delay = ", a delay begins: history is compacted"
		case e.delays:
			delay = ", a delay begins"
		}
		return fmt.Sprintf("attempt %d knows that %s%s", e.actor, place, delay)
	case waited:
		return fmt.Sprintf("attempt %d has waited for its lock delay", e.actor)
	case holds:
		return fmt.Sprintf("attempt %d holds", e.actor)
	case told:
		return fmt.Sprintf("lease %d is told to be lost", e.actor)
	case happens:
		return e.happen.String()
	}
	return "all calls have returned, and everything is removed"
}

// changeOf returns the event that a step is if it changes the store: one permit, one lease or the limit.
func changeOf(s, t *state) event {
	if t.limitAt != s.limitAt {
		return event{action: resizes, limit: t.limit, high: t.high}
	}
	for l := range s.leases {
		if s.leases[l].alive && !t.leases[l].alive {
			return event{action: revokes, actor: int8(l)}
		}
	}
	for i := range t.entryCount {
		is := &t.entries[i]
		switch was := s.created(is.created); {
		case was == nil:
			return event{action: puts, actor: is.lease}
		case was.deleted != is.deleted:
			return event{action: removes, actor: is.lease}
		case was.mark != is.mark:
			return event{action: marks, actor: is.lease, mark: is.mark}
		}
	}
	panic("a step has a revision and changes nothing")
}

// actionOf returns what a step from s is seen as.
func actionOf(s *state, st *modelsearch.Step[state]) action {
	t := &st.State
	if t.now != s.now {
		return changeOf(s, t).action
	}
	was, is := &s.attempts[st.Actor], &t.attempts[st.Actor]
	switch st.What {
	case "finds its entry, and what stood ahead then", "sees the mark of the entry ahead",
		"sees that the entry ahead has gone", "finds that the entry ahead has gone", firstLookCompacted:
		return judged
	case "has waited for its lock delay":
		return waited
	case "is told that its lease is lost", toldInItsCall:
		return told
	case "asks whether it holds", presumesRevoked:
		if is.delay.running && !was.delay.running {
			return judged
		}
		return unseen
	case "hears that a permit ahead has gone", "hears of the limit", "gives up", "releases", "removes its entry",
		"is refused: its weight is above the limit",
		"asks whether it holds, and has no reply", "finds that what stood ahead of its entry is compacted":
		return unseen // the last three change nothing: the entry had gone, or the request was refused
	}
	panic("no event tells of the step: " + st.What)
}

// isStep reports whether a step from s, which is seen as the action of an event, is the event.
func (m *model) isStep(e *event, s *state, st *modelsearch.Step[state]) bool {
	t := &st.State
	switch e.action {
	case puts, removes, revokes, resizes:
		return changeOf(s, t) == *e
	case marks:
		c := changeOf(s, t)
		return c.actor == e.actor && t.isSame(t.attempts[st.Actor].created, c.mark, e.mark)
	case told:
		return t.leases[e.actor].told && !s.leases[e.actor].told
	case judged:
		was, is := &s.attempts[e.actor], &t.attempts[e.actor]
		if st.Actor != e.actor || e.cut != (st.What == firstLookCompacted) {
			return false
		}
		begins := is.delay.running &&
			(is.delay != was.delay || e.cut || was.stage == far && is.stage == first && is.base == 0)
		return m.isPlace(e, is) && e.delays == begins
	}
	return st.Actor == e.actor
}

// isPlace reports whether an attempt has the place that a judgment says. One that finds the limit too low for it
// leaves.
func (m *model) isPlace(e *event, a *attempt) bool {
	switch {
	case a.stage == leaving:
		return m.attempts[e.actor].weight > a.limit
	case e.ahead != 0:
		return a.stage == far && a.ahead == e.ahead
	case e.first:
		return a.stage == first
	case e.delays:
		return a.stage == delayed
	default:
		return a.stage == holding
	}
}

// isSame reports whether two marks of a permit, which was created then, say the same: no permit ahead of it went
// between the two revisions.
func (s *state) isSame(created, a, b revision) bool {
	for i := range s.entryCount {
		e := &s.entries[i]
		if e.created < created && e.deleted != 0 && (e.deleted <= a) != (e.deleted <= b) {
			return false
		}
	}
	return true
}

// isNothing reports whether an event may happen while the model stays in s.
func (m *model) isNothing(e event, s *state) bool {
	switch e.action {
	case judged: // by the reply to the put: in the model that is one step
		a := &s.attempts[e.actor]
		return a.created == s.now && a.stage != unplaced && m.isPlace(&e, a) && e.delays == a.delay.running
	case waited: // it says so at each request
		return !s.attempts[e.actor].delay.running
	case holds:
		return s.attempts[e.actor].stage == holding
	case told:
		return s.leases[e.actor].told
	case ended:
		t := *s
		for i := range t.attempts { // a call may give up before it has sent anything
			if t.attempts[i].stage == idle {
				t.attempts[i].stage = done
			}
		}
		return finished(&t)
	}
	return false
}

// refused returns what is wrong with a run: see modeltrace.
func (m *model) refused(events []event) (wrong string, most int) {
	m.traced = true
	return modeltrace.Model[state, event]{
		Start: []state{m.start()}, Steps: m.expand,
		Unseen: func(s *state, st *modelsearch.Step[state]) bool { return actionOf(s, st) == unseen },
		Is: func(e event, s *state, st *modelsearch.Step[state]) bool {
			return st.Wrong == "" && actionOf(s, st) == e.action && m.isStep(&e, s, st)
		},
		Nothing: m.isNothing, Reduce: func(*state) {}, // steps are reduced
	}.Refused(events)
}
