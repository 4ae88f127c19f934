package queuemodel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/tests/models/modelsearch"
	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
)

// Traces: package modeltrace says how a run is compared with the model.

// An action is what a step of the model is seen as.
type action int8

const (
	unseen  action = iota // nothing tells of the step
	changes               // etcd has a new revision
	sends                 // an attempt sends its enqueue
	judged                // an attempt knows what is ahead of its entry
	waited                // an attempt has waited for its lock delay
	holds                 // an attempt holds
	told                  // a session knows that its lease is lost
	ended                 // all calls have returned, and everything is removed
	happens               // something that the model has no steps for: see follow.go
)

// An event is one of a run.
type event struct {
	action action
	actor  int8   // an attempt; of told: a lease
	ahead  name   // of judged: the entry ahead, or nothing
	delays bool   // of judged: the lock delay begins
	long   bool   // of judged: it does not, because the former holder has been told long ago
	cut    bool   // of judged: it does, because how a session has ended was not found in time
	change change // of changes
	happen *happening
}

var nothing = name{attempt: -1}

// A change is what one revision of etcd's store put and deleted: entries, and session keys by their leases.
type change struct {
	put, gone       nameSet
	keyPut, keyGone leaseSet
}

// A nameSet has a bit for each name.
type nameSet uint64

func (n name) bit() nameSet {
	return 1 << ((int(n.attempt)*maxTries+int(n.try))*maxMembers + int(n.member))
}

func (set nameSet) String() string {
	var names []string
	for i := range int8(maxAttempts * maxTries * maxMembers) {
		if n := (name{i / maxMembers / maxTries, i / maxMembers % maxTries, i % maxMembers}); set&n.bit() != 0 {
			names = append(names, n.String())
		}
	}
	return strings.Join(names, " ")
}

func (n name) String() string {
	if n == nothing {
		return "nothing"
	}
	text := fmt.Sprintf("entry %d.%d", n.attempt, n.try)
	if n.member > 0 {
		text += fmt.Sprintf(".%d", n.member)
	}
	return text
}

func (e event) String() string {
	switch e.action {
	case changes:
		var parts []string
		for what, set := range map[string]string{"put": e.change.put.String(), "deleted": e.change.gone.String()} {
			if set != "" {
				parts = append(parts, set+" is "+what)
			}
		}
		for l := range int8(2 * maxSessions) {
			if e.change.keyPut.has(l) {
				parts = append(parts, fmt.Sprintf("the session key of lease %d is put", l))
			}
			if e.change.keyGone.has(l) {
				parts = append(parts, fmt.Sprintf("the session key of lease %d is deleted", l))
			}
		}
		slices.Sort(parts)
		return "etcd: " + strings.Join(parts, ", ")
	case judged:
		delay := "no delay begins"
		switch {
		case e.cut:
			delay = "a delay begins: how a session has ended was not found in time"
		case e.delays:
			delay = "a delay begins"
		case e.long:
			delay += long
		}
		return fmt.Sprintf("attempt %d knows that %v is ahead, %s", e.actor, e.ahead, delay)
	case told:
		return fmt.Sprintf("lease %d is told to be lost", e.actor)
	case ended:
		return "all calls have returned, and everything is removed"
	case happens:
		return e.happen.String()
	}
	what := map[action]string{sends: "sends its enqueue", waited: "has waited for its lock delay", holds: "holds"}
	return fmt.Sprintf("attempt %d %s", e.actor, what[e.action])
}

// actionOf returns what a step from s is seen as. The revisions of the step are those of s.
func (m *model) actionOf(s *state, st *modelsearch.Step[state]) action {
	t := &st.State
	if changeOf(s, t) != (change{}) {
		return changes
	}
	switch st.What {
	case "sends its enqueue", "sends its enqueue: it began before its session lost a lease",
		"has no reply and sends the same enqueue again", "has no reply and sends its enqueue with the new gate",
		"has no reply yet and sends a copy of its enqueue beside the first":
		return sends
	case "reads the reply to its enqueue":
		switch was, is := s.attempts[st.Actor].stage, t.attempts[st.Actor].stage; {
		case was == enqueuing && is != enqueuing:
			return judged
		case was == enqueuing && t.awaits(st.Actor):
			return sends
		}
		return unseen
	case "sees that its entry ahead stands", "judges: the watch told when the entry ahead went",
		"judges: the watch told when the entry ahead went" + long, "judges: no watch told when the entry ahead went",
		"judges: no watch told when the entry ahead went" + long, compactedStep:
		return judged
	case "has waited for its lock delay":
		if s.attempts[st.Actor].stage == removing {
			return unseen // then it removes its entry
		}
		return waited
	case "holds":
		return holds
	case "is lost: its session is told", "is given up: its session has no confirmed renewal in time",
		"is given up: the put of its session key goes unanswered",
		"has its session key put again by its session, if it still lives":
		return told
	case "has a copy reach etcd", "has a copy refused: its lease is gone", "has a copy or its reply lost", "gives up",
		"gives up without a reply", "ends: its session has no lease",
		"finds that one of its entries is gone, and queues anew", "is cleared: nothing of it exists",
		"has an entry that the sweeper finds and will delete after a lock delay", "reads that its session key was put",
		"finds the entry gone that it is to remove", "releases": // and finds that its entry had gone
		return unseen
	}
	panic("no event tells of the step: " + st.What)
}

// awaits reports whether an attempt waits for the reply to a copy.
func (s *state) awaits(i int8) bool {
	return slices.ContainsFunc(s.copies[:s.copyCount], func(c enqueueCopy) bool { return c.attempt == i && c.awaited })
}

// changeOf returns what a step has changed in etcd.
func changeOf(s, t *state) (c change) {
	before, after := s.names(), t.names()
	c.put, c.gone = after&^before, before&^after
	for l := range s.leases {
		switch was, is := s.leases[l].key, t.leases[l].key; {
		case was == is:
		case is == 0:
			c.keyGone |= 1 << l
		default:
			c.keyPut |= 1 << l
		}
	}
	return c
}

// names returns the names of the entries that stand.
func (s *state) names() (set nameSet) {
	for _, e := range s.entries[:s.entryCount] {
		if e.deleted == 0 {
			set |= e.name.bit()
		}
	}
	return set
}

// isStep reports whether a step from s, which is seen as the action of an event, is the event.
func (e *event) isStep(s *state, st *modelsearch.Step[state]) bool {
	t := &st.State
	switch e.action {
	case changes:
		return changeOf(s, t) == e.change
	case told:
		return t.leases[e.actor].told && !s.leases[e.actor].told
	case judged:
		was, is := s.place(e.actor, 0), t.place(e.actor, 0)
		if st.Actor != e.actor || is.created == 0 || is.aheadName() != e.ahead ||
			strings.HasSuffix(st.What, long) && !e.long || st.What == compactedStep && !e.cut {
			return false
		}
		return e.delays && is.delay.running || !e.delays && is.delay == was.delay
	}
	return st.Actor == e.actor
}

func (p *place) aheadName() name {
	if p.ahead.created == 0 {
		return nothing
	}
	return p.ahead.name
}

// isNothing reports whether an event may happen while the model stays in s.
func (m *model) isNothing(e event, s *state) bool {
	switch a := &s.attempts[max(e.actor, 0)%maxAttempts]; e.action {
	case sends: // it found its entry gone before its session was told, and queues anew
		l := s.leases[a.lease]
		return a.stage != idle && a.stage != done && !l.alive && !l.told
	case judged: // it has looked already
		p := &a.places[0]
		return p.created != 0 && p.ahead.created != 0 && p.ahead.name == e.ahead && !e.delays && p.seen >= s.now
	case waited: // for a quarter of the delay, or twice: package quietmodel has that
		return a.stage == waiting && !a.places[0].delay.running
	case holds:
		return a.stage == holding
	case told:
		return s.leases[e.actor].told
	case ended:
		t := *s
		for i := range t.attempts { // a call may give up before it has sent anything
			if t.attempts[i].stage == idle {
				t.attempts[i].stage = done
			}
		}
		return m.finished(&t)
	}
	return false
}

// refused returns what is wrong with a run: see modeltrace. A run is not followed to its end where several attempts
// have sent many copies, each of which may be lost or on its way.
func (m *model) refused(events []event) (wrong string, most int) {
	return modeltrace.Model[state, event]{
		Start: []state{m.start()},
		Steps: func(s *state) []modelsearch.Step[state] {
			m.findSteps(s)
			return m.steps
		},
		Unseen: func(s *state, st *modelsearch.Step[state]) bool { return m.actionOf(s, st) == unseen },
		Is: func(e event, s *state, st *modelsearch.Step[state]) bool {
			return m.actionOf(s, st) == e.action && e.isStep(s, st) && st.State.copyCount < maxCopies
		},
		Nothing: m.isNothing, Reduce: m.reduce,
	}.Refused(events)
}
