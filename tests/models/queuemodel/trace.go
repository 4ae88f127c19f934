package queuemodel

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/holdfast-go/holdfast/tests/models/modelsearch"
	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
)

// Traces: package modeltrace says how a run is compared with the model. In these a put and its reply are two steps: the
// process sends a copy, etcd carries it out or refuses it, and the attempt looks.

// An action is what a step of the model is seen as.
type action int8

const (
	unseen  action = iota // nothing tells of the step
	changes               // etcd has a new revision
	sends                 // an attempt sends its put
	judged                // an attempt knows what is ahead of its entry
	waited                // an attempt has waited for its delays
	granted               // an attempt may hold, as its queue says
	holds                 // it holds
	letsGo                // a caller ends its work: it releases, or has been told that its hold is lost
	told                  // a session knows that its lease is lost
	ended                 // all calls have returned, and everything is removed
	happens               // something that the model has no steps for: see follow.go
)

// An event is one of a run.
type event struct {
	action action
	actor  int8   // an attempt; of told: a lease
	ahead  int8   // of judged: the key of the entry ahead, or nothing
	delays bool   // of judged: dead claims are ahead, and no entry
	stale  bool   // of sends: the put compares a gate that has moved
	pair   int8   // of sends: the pair of leases
	change change // of changes
	happen *happening
}

const nothing = int8(-1)

// A bitSet has a bit for each key, or for each lease.
type bitSet uint16

func bit(n int8) bitSet { return 1 << n }

func (b bitSet) has(n int8) bool { return b>>n&1 == 1 }

// A change is what one revision of etcd's store put and deleted: entries, claims, and session keys by their leases.
// Entries are written to by another client, and moved to a lease of their own.
type change struct{ put, gone, claimed, unclaimed, keyPut, keyGone, written, moved bitSet }

func (e event) String() string {
	switch e.action {
	case changes:
		return "etcd: " + e.change.String()
	case judged:
		what := "nothing is"
		switch {
		case e.ahead != nothing:
			what = fmt.Sprintf("entry %d is", e.ahead)
		case e.delays:
			what = "only dead claims are"
		}
		return fmt.Sprintf("attempt %d knows that %s ahead", e.actor, what)
	case told:
		return fmt.Sprintf("lease %d is told to be lost", e.actor)
	case ended:
		return "all calls have returned, and everything is removed"
	case happens:
		return e.happen.String()
	}
	what := map[action]string{
		sends: "sends its put", waited: "has waited for its delays", granted: "is granted its lock", holds: "holds",
		letsGo: "ends its work",
	}[e.action]
	if e.stale {
		what += " with a gate that has moved"
	}
	return fmt.Sprintf("attempt %d %s", e.actor, what)
}

func (c change) String() string {
	var parts []string
	for _, p := range []struct {
		set  bitSet
		what string
	}{
		{c.put, "entry %d is put"}, {c.gone, "entry %d is deleted"}, {c.claimed, "claim %d is put"},
		{c.unclaimed, "claim %d is deleted"}, {c.keyPut, "the session key of lease %d is put"},
		{c.keyGone, "the session key of lease %d is deleted"}, {c.written, "entry %d is written to"},
		{c.moved, "entry %d is moved to another lease"},
	} {
		for set := p.set; set != 0; set &= set - 1 {
			parts = append(parts, fmt.Sprintf(p.what, bits.TrailingZeros16(uint16(set))))
		}
	}
	return strings.Join(parts, ", ")
}

// changeOf returns what a step has changed in etcd.
func (m *model) changeOf(s *state, st *modelsearch.Step[state]) (c change) {
	t := &st.State
	for k := range int8(maxKeys) {
		was, is := &s.keys[k], &t.keys[k]
		c.put |= when(was.e == 0 && is.e != 0, k)
		c.gone |= when(was.e != 0 && is.e == 0, k)
		c.claimed |= when(was.c == 0 && is.c != 0, k)
		c.unclaimed |= when(was.c != 0 && is.c == 0, k)
		c.written |= when(is.e != 0 && !was.written && is.written, k)
		c.moved |= when(is.e != 0 && !was.kept && is.kept, k)
	}
	for l := range int8(maxLeases) {
		c.keyPut |= when(t.leases[l].s && (!s.leases[l].s || st.What == putsKey && st.Actor == l), l)
		c.keyGone |= when(s.leases[l].s && !t.leases[l].s, l)
	}
	if a := st.Actor; st.What == isAsked { // with the bell
		l := 2*m.attempts[a].session + s.attempts[a].pair
		c.keyPut |= when(t.leases[l].s, l)
	}
	return c
}

func when(is bool, n int8) bitSet {
	if is {
		return bit(n)
	}
	return 0
}

// actionOf returns what a step from s is seen as.
func (m *model) actionOf(s *state, st *modelsearch.Step[state]) action {
	if m.changeOf(s, st) != (change{}) {
		return changes
	}
	switch st.What {
	case waitsOut:
		return waited
	case beginsToHold:
		return holds
	case isTold, findsLeaseGone:
		return told
	case releases, isPolled:
		if !m.alone {
			return letsGo
		}
	}
	if a := &st.State.attempts[st.Actor%maxAttempts]; strings.HasPrefix(st.What, "looks") && a.stage != leaving {
		return judged
	}
	return unseen
}

// isStep reports whether a step from s, which is seen as the action of an event, is the event.
func (m *model) isStep(e event, s *state, st *modelsearch.Step[state]) bool {
	switch t := &st.State; e.action {
	case changes:
		return m.changeOf(s, st) == e.change
	case told:
		return t.leases[e.actor].told && !s.leases[e.actor].told
	case judged:
		a := &t.attempts[e.actor]
		if a.stage == waiting { // for either of two entries of one set
			return st.Actor == e.actor && e.ahead >= 0 && e.ahead < maxKeys && t.keys[e.ahead].e == a.watched
		}
		return st.Actor == e.actor && e.ahead == nothing && (a.stage == delayed) == e.delays
	}
	return st.Actor == e.actor
}

// isNothing reports whether an event may happen while the model stays in s.
func (m *model) isNothing(e event, s *state) bool {
	switch a := &s.attempts[max(e.actor, 0)%maxAttempts]; e.action {
	case sends: // its lease is gone, and its session was not told yet; or it is, and the request was on its way
		return !s.leases[2*m.attempts[e.actor].session+e.pair].l1
	case waited: // once more: its clear, or the reply to it, was lost
		return a.stage == ready || a.stage == delayed && a.waited
	case granted: // its call may fail yet
		return a.stage == ready
	case letsGo: // its session was told before
		return a.stage != holding
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

// happens changes a state by an event that is no step.
func (m *model) happens(e event, s *state) bool {
	switch {
	case e.happen != nil:
		e.happen.to(s)
		return true
	case e.action != sends:
		return false
	}
	// What the reply to a put tells comes where etcd has carried it out, and a further copy may be sent before it is read.
	if a := &s.attempts[e.actor]; a.stage < sent || a.stage >= leaving || a.pair != e.pair {
		return false
	}
	if same := s.copiesOf(e.actor); !e.stale && same < 2 { // a third one does nothing that these do not
		s.keep(requestCopy{kind: latePut, by: e.actor, pair: e.pair})
	}
	return true
}

// copiesOf returns the number of copies of an attempt's put that etcd may carry out yet.
func (s *state) copiesOf(i int8) (count int) {
	for _, c := range s.copies {
		if c.kind == latePut && c.by == i {
			count++
		}
	}
	return count
}

// tracedCopySteps: etcd carries out a copy of a put, or refuses it.
func (m *model) tracedCopySteps(s *state, n int) {
	c := s.copies[n]
	t := m.step(s, "has a put refused", c.by)
	t.copies[n] = requestCopy{}
	if m.put(t, c.by, c.pair, 0, 0) {
		m.steps[len(m.steps)-1].What = "has a put carried out"
	}
}

// tracedPutSteps: an attempt learns what became of its put. If an entry has gone since, it removes what is left.
func (m *model) tracedPutSteps(s *state, i int8) {
	if m.found(s, i) != 0 {
		m.wasPut(m.step(s, "looks: its entries stand", i), i)
	}
	if r := m.left(s, i); r != 0 {
		a := &m.step(s, "finds an entry gone", i).attempts[i]
		a.stage, a.r = leaving, r
	}
	if n := 2*m.attempts[i].session + s.attempts[i].pair; !s.leases[n].l1 {
		m.tell(m.step(s, findsLeaseGone, i), n)
	}
}

// aloneSteps: an entry that is followed by itself knows that claims have gone, but not by whom they were deleted.
func (m *model) aloneSteps(s *state, i int8) {
	a := &s.attempts[i]
	for k, c := range a.dead {
		if c != 0 && s.keys[k].c != 0 {
			return
		}
	}
	if a.stage == delayed && a.waited && m.stand(s, i) {
		m.step(s, "has cleared the dead claims", i).attempts[i].stage = ready
	}
}

// tracedLeaveSteps: an attempt removes its entries. If copies of its put may be carried out yet, it ends only when its
// session has put S again; then it removes what it finds.
func (m *model) tracedLeaveSteps(s *state, i int8) {
	r, open := s.attempts[i].r, s.copiesOf(i) > 0
	if r == 0 {
		r = max(m.found(s, i), m.left(s, i))
	}
	if open && r == 0 {
		return
	}
	t := m.step(s, "leaves", i)
	m.release(t, m.own(t, i), r)
	if t.attempts[i].r = 0; !open {
		m.end(t, i, true)
	}
}

// refused returns what is wrong with a run: see modeltrace.
func (m *model) refused(events []event) (wrong string, most int) {
	return m.refusedFrom([]state{m.start()}, events)
}

func (m *model) refusedFrom(start []state, events []event) (wrong string, most int) {
	m.traced = true
	return modeltrace.Model[state, event]{
		Start: start,
		Steps: func(s *state) []modelsearch.Step[state] {
			m.findSteps(s)
			return m.steps
		},
		Unseen: func(s *state, st *modelsearch.Step[state]) bool { return m.actionOf(s, st) == unseen },
		Is: func(e event, s *state, st *modelsearch.Step[state]) bool {
			return m.actionOf(s, st) == e.action && m.isStep(e, s, st)
		},
		Nothing: m.isNothing, Happens: m.happens, Reduce: m.reduce,
	}.Refused(events)
}
