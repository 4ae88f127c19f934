package queuemodel

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/steps"
	"github.com/holdfast-go/holdfast/tests/models/modelsearch"
	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
)

// alone is the model of an entry among those of others. These have no attempts, only names.
var alone = scenario{
	name: "an entry of a recorded run", sessions: 1, attempts: []plan{{slow: true, givesUp: true}},
	copies: 2, lossy: true, unknown: true, compacted: true, looksBack: true, alwaysSuspects: true, lateGate: true,
	beside: true,
}

const (
	otherWriters  = 1 // the attempts in the names of others
	otherReaders  = 2
	stranger      = 3 // that of an entry which is not ahead
	otherLeases   = 2 // the first lease of other sessions
	mostOfOneKind = maxTries * maxMembers
)

// Why an entry is not followed to its end, beside what modeltrace has.
const (
	handed       = "it has the place of one that gave up, and what that knew of the other mode"
	movedEarly   = "an administrator moved it to another lease before it was held"
	unknownPlace = "what stood ahead when it was put was compacted before it was read"
)

// Follow compares the steps that processes say of their entries with the model. They are in order for each process. Of
// the record it needs the changes of etcd's store, and the calls: which have entries of their own. Package semmodel
// follows permits.
func Follow(h *modeltrace.History) modeltrace.Report {
	return h.Report(false, func(e *modeltrace.Entry) (wrong, stopped string) {
		f := follower{History: h, own: e, names: map[*modeltrace.Entry]name{e: {}}, leases: map[int64]int8{e.Session: 0}}
		return f.follow()
	})
}

// A follower follows one entry.
type follower struct {
	*modeltrace.History
	own    *modeltrace.Entry
	names  map[*modeltrace.Entry]name // of the entry and of those ahead
	leases map[int64]int8
	model  *model
}

// A happening is what happens to an entry at one revision, but for a removal by its own session.
type happening struct {
	at              int64
	keyPut, keyGone leaseSet
	gone            nameSet
	noticed         bool // an administrator writes into the entry
}

// follow returns what is wrong with the entry, or why it is not followed to its end.
func (f *follower) follow() (wrong, stopped string) {
	steps := f.Steps(f.own)
	switch {
	case !f.nameAhead():
		return "", modeltrace.TooMany
	case f.isHanded():
		return "", handed
	case f.own.MovedAt != 0 && !f.own.Held:
		return "", movedEarly
	case len(steps) > 0 && steps[0].Unfound:
		return "", unknownPlace
	}
	f.model = newModel(alone)
	f.model.modes, f.model.single = true, true
	f.model.members = [][]member{
		{{shared: f.own.Shared}}, make([]member, maxMembers), slices.Repeat([]member{{shared: true}}, maxMembers),
	}
	start, ok := f.start()
	if !ok {
		return "", modeltrace.NoSessionKey
	}
	wrong, most := f.refused(start, f.events(steps))
	if most > modeltrace.MostStates {
		return "", modeltrace.TooManyStates
	}
	if wrong != "" {
		wrong += "\n\t" + f.legend()
	}
	return wrong, ""
}

// isHanded reports whether the entry may know of others, from those in whose place it was put, one after the other.
func (f *follower) isHanded() bool {
	for before := f.own.Follows; before != nil; before = before.Follows {
		if slices.ContainsFunc(before.Ahead, f.isOfOtherMode) {
			return true
		}
	}
	return false
}

func (f *follower) isOfOtherMode(o *modeltrace.Entry) bool { return o.Shared != f.own.Shared }

// nameAhead gives names to the entries ahead, and to the leases of their sessions. It returns false if the model has
// too few.
func (f *follower) nameAhead() bool {
	count := make(map[int8]int8)
	for _, e := range f.own.Ahead {
		of := int8(otherWriters)
		if e.Shared {
			of = otherReaders
		}
		if count[of] == mostOfOneKind || len(f.names) == maxEntries {
			return false
		}
		f.names[e] = name{of, count[of] / maxMembers, count[of] % maxMembers}
		count[of]++
		if _, known := f.leases[e.Session]; !known {
			l := len(f.leases) - 1 + otherLeases
			if l == 2*maxSessions {
				return false
			}
			f.leases[e.Session] = int8(l)
		}
	}
	return true
}

// start returns the states in which etcd may be about to put the entry: its attempt has sent the put. It returns false
// if they are not known.
func (f *follower) start() (all []state, ok bool) {
	keys, gate := make(map[int64]modeltrace.KeyChange), f.gate()
	revisions := []int64{gate}
	for lease := range f.leases {
		if keys[lease], ok = f.KeyBefore(lease, f.own.Created); !ok {
			return nil, false
		}
		revisions = append(revisions, keys[lease].At)
	}
	for _, e := range f.own.Ahead {
		revisions = append(revisions, e.Created)
	}
	slices.Sort(revisions)
	revisions = slices.Compact(revisions)
	number := func(at int64) revision { return revision(slices.Index(revisions, at) + 1) }

	s := f.model.start()
	s.now = revision(len(revisions))
	for id, l := range f.leases {
		s.leases[l] = lease{granted: true, alive: true}
		if at := number(keys[id].At); keys[id].Deleted {
			s.leases[l].gone = at
		} else {
			s.leases[l].key = at
		}
	}
	s.sessions[0].gate = s.leases[0].key
	for _, e := range f.own.Ahead {
		s.entries[s.entryCount] = entry{name: f.names[e], lease: f.leases[e.Session], created: number(e.Created)}
		s.entryCount++
	}
	s.attempts[0].gate = number(gate)
	s.send(0)
	for _, requeued := range []bool{true, false} {
		s.attempts[0].requeued = requeued // perhaps: its session may have lost a lease since the call began
		t := s
		f.model.reduce(&t)
		if all = append(all, t); f.own.Requeued {
			break
		}
	}
	return all, true
}

// gate returns the mod revision of the session key that the put has compared: of those that puts of the entry compare,
// the present one, or, if none does, the latest.
func (f *follower) gate() (gate int64) {
	key, _ := f.KeyBefore(f.own.Session, f.own.Created)
	for _, sent := range f.Gates(f.own) {
		if sent == key.At || gate != key.At && sent > gate && sent < f.own.Created {
			gate = sent
		}
	}
	return gate
}

// events returns the put of the entry and all after it that may matter to it.
func (f *follower) events(steps []steps.Step) []event {
	events := []event{{action: changes, change: change{put: name{}.bit()}}}
	for _, at := range f.moments() {
		before := f.own.Before(at, steps)
		for _, s := range steps[:before] {
			events = append(events, f.step(s))
		}
		steps = steps[before:]
		if at == f.own.MovedAt { // it was held, and MinHold or an administrator keeps it
			return events
		}
		removed := at == f.own.Gone && f.own.ByRequest
		if removed {
			events = append(events, event{action: changes, change: change{gone: name{}.bit()}})
		}
		if h := f.happening(at, removed); h != (happening{at: at}) {
			events = append(events, event{action: happens, happen: &h})
		}
	}
	for _, s := range steps {
		events = append(events, f.step(s))
	}
	return events
}

// moments are the revisions after the put at which something changes that may matter to the entry.
func (f *follower) moments() []int64 {
	at := map[int64]bool{f.own.MovedAt: true, f.own.NoticedAt: true}
	for e := range f.names {
		at[e.Gone] = true
	}
	for lease := range f.leases {
		for _, key := range f.Keys[lease] {
			at[key.At] = true
		}
	}
	maps.DeleteFunc(at, func(rev int64, _ bool) bool {
		return rev <= f.own.Created || f.own.Gone != 0 && rev > f.own.Gone
	})
	return slices.Sorted(maps.Keys(at))
}

// happening returns what happens at a revision. removed: its session has removed the entry then.
func (f *follower) happening(at int64, removed bool) happening {
	h := happening{at: at, noticed: at == f.own.NoticedAt}
	for lease, l := range f.leases {
		for _, key := range f.Keys[lease] {
			switch {
			case key.At != at:
			case key.Deleted:
				h.keyGone |= 1 << l
			default:
				h.keyPut |= 1 << l
			}
		}
	}
	for e, n := range f.names {
		if e.Gone == at && !(e == f.own && removed) {
			h.gone |= n.bit()
		}
	}
	return h
}

// step returns a step that the process has said as an event.
func (f *follower) step(s steps.Step) event {
	switch s.Action {
	case steps.Waited:
		return event{action: waited}
	case steps.Holds:
		return event{action: holds}
	case steps.Judged, steps.Sends:
	}
	e := event{action: judged, ahead: nothing, delays: s.Delays, long: s.LongTold, cut: s.Unfound}
	if s.Ahead != "" {
		e.ahead = name{attempt: stranger}
	}
	for other, n := range f.names {
		if other.Key == s.Ahead && other.Created == s.AheadCreated {
			e.ahead = n
		}
	}
	return e
}

// to changes a state.
func (h *happening) to(s *state) {
	s.now++
	for l := range int8(2 * maxSessions) {
		if h.keyGone.has(l) {
			s.deleteSessionKey(l)
		}
		if h.keyPut.has(l) {
			s.leases[l].key, s.leases[l].gone = s.now, 0
		}
	}
	for i := range s.entryCount {
		e := &s.entries[i]
		if e.deleted == 0 && h.gone&e.name.bit() != 0 {
			s.deleteNow(e.version())
		}
		if e.deleted == 0 && e.name == (name{}) && h.noticed {
			e.noticed = asked
		}
	}
}

func (h *happening) String() string {
	c := change{gone: h.gone, keyPut: h.keyPut, keyGone: h.keyGone}
	text := event{action: changes, change: c}.String()
	if h.noticed {
		text += "; an administrator writes into the entry"
	}
	return fmt.Sprintf("at revision %d, %s", h.at, text)
}

// refused is modeltrace.Model.Refused. Nothing tells which copies of the put reach etcd. All compare the gate that the
// entry was put by: another one is sent where its process says so.
func (f *follower) refused(start []state, events []event) (wrong string, most int) {
	m := f.model
	seen := func(s *state, st *modelsearch.Step[state]) action {
		switch a := m.actionOf(s, st); {
		case a != sends:
			return a
		case st.What == "has no reply and sends its enqueue with the new gate", st.What == "reads the reply to its enqueue":
			return told // no event of an entry is that
		}
		return unseen
	}
	return modeltrace.Model[state, event]{
		Start: start,
		Steps: func(s *state) []modelsearch.Step[state] {
			m.lastOfEqual = false
			m.findSteps(s)
			if f.hasTwins() { // and either may be read
				steps := slices.Clone(m.steps)
				m.lastOfEqual = true
				m.findSteps(s)
				return append(steps, m.steps...)
			}
			return m.steps
		},
		Unseen: func(s *state, st *modelsearch.Step[state]) bool { return seen(s, st) == unseen },
		Is: func(e event, s *state, st *modelsearch.Step[state]) bool {
			return seen(s, st) == e.action && e.isStep(s, st)
		},
		Nothing: m.isNothing,
		Happens: func(e event, s *state) bool {
			if e.happen != nil {
				e.happen.to(s)
			}
			return e.happen != nil
		},
		Reduce: m.reduce,
	}.Refused(events)
}

// hasTwins reports whether two entries of one set are ahead.
func (f *follower) hasTwins() bool {
	for i, e := range f.own.Ahead[min(1, len(f.own.Ahead)):] {
		if e.Created == f.own.Ahead[i].Created {
			return true
		}
	}
	return false
}

// legend says which entries and leases the names stand for.
func (f *follower) legend() string {
	var lines []string
	for e, n := range f.names {
		lines = append(lines, fmt.Sprintf("%v: %v", n, e))
	}
	for lease, l := range f.leases {
		lines = append(lines, fmt.Sprintf("lease %d: %x", l, lease))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n\t")
}
