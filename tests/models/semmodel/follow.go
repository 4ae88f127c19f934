package semmodel

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/steps"
	"github.com/holdfast-go/holdfast/tests/models/modelsearch"
	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
)

// Permits of a record are followed one at a time: see modeltrace. The model has one attempt, that of the permit. The
// others ahead are entries only. All sessions count as told at once, so a lock delay may end at any time: how long one
// lasts is not compared.

// alone is what may go wrong for a permit.
var alone = scenario{name: "a permit of a recorded run", unknown: true, compacted: true, lossy: true}

const (
	otherLeases   = 2            // the first lease of other sessions
	mostRevisions = math.MaxInt8 // that the model numbers
	mostWeight    = math.MaxInt8 / 2
)

// Why a permit is not followed to its end, beside what modeltrace has.
const (
	noLimit  = "the limit had been put before the record began"
	tooLarge = "it has more revisions, a higher limit or more weights ahead than the model can count"
	touched  = "an administrator wrote to it before it was held"
)

// Follow compares the steps that processes say of their permits with the model.
func Follow(h *modeltrace.History) modeltrace.Report {
	return h.Report(true, func(e *modeltrace.Entry) (wrong, stopped string) {
		all := append([]*modeltrace.Entry{e}, e.Ahead...)
		f := follower{History: h, own: e, all: all, leases: map[int64]int8{e.Session: 0}}
		return f.follow()
	})
}

// A follower follows one permit.
type follower struct {
	*modeltrace.History
	own    *modeltrace.Entry
	all    []*modeltrace.Entry      // this one, and those ahead: they have the numbers of attempts
	limits []modeltrace.LimitChange // the one before it was put, and those since
	leases map[int64]int8
	matter []int64 // the revisions that may matter to it, in order: the model has their numbers
	model  model
}

// follow returns what is wrong with the permit, or why it is not followed to its end.
func (f *follower) follow() (wrong, stopped string) {
	own := f.own
	for _, limit := range f.Limits[own.Prefix] {
		if limit.At < own.Created {
			f.limits = nil
		}
		f.limits = append(f.limits, limit)
	}
	switch {
	case len(f.limits) == 0 || f.limits[0].At > own.Created:
		return "", noLimit
	case len(own.Ahead) >= maxEntries || !f.nameLeases():
		return "", modeltrace.TooMany
	case max(own.MovedAt, own.NoticedAt) != 0 && !own.Held:
		return "", touched
	}
	if f.findMoments(); len(f.matter) > mostRevisions || f.isTooLarge() {
		return "", tooLarge
	}
	start, ok := f.start()
	if !ok {
		return "", modeltrace.NoSessionKey
	}
	if key, _ := f.KeyBefore(own.Session, own.Created); !slices.Contains(f.Gates(own), key.At) {
		return fmt.Sprintf("its put was carried out, and compared another session key: %v, not %d", f.Gates(own), key.At), ""
	}
	wrong, most := f.refused(start, f.events())
	if most > modeltrace.MostStates {
		return "", modeltrace.TooManyStates
	}
	if wrong != "" {
		wrong += "\n\t" + f.legend()
	}
	return wrong, ""
}

// nameLeases gives numbers to the leases of the sessions that have permits ahead. It returns false if the model has too
// few.
func (f *follower) nameLeases() bool {
	for _, e := range f.own.Ahead {
		if _, known := f.leases[e.Session]; !known {
			f.leases[e.Session] = int8(len(f.leases) - 1 + otherLeases)
		}
	}
	return len(f.leases)-1+otherLeases <= len(state{}.leases)
}

// isTooLarge reports whether the numbers of the model are too small.
func (f *follower) isTooLarge() bool {
	sum := 0
	for _, e := range f.all {
		sum += layout.WeightOf(e.Key)
	}
	return sum > mostWeight || slices.ContainsFunc(f.limits, func(l modeltrace.LimitChange) bool {
		return l.Limit.High > mostWeight
	})
}

// findMoments finds the revisions that may matter to the permit.
func (f *follower) findMoments() {
	own, at := f.own, make(map[int64]bool)
	for _, e := range f.all {
		for _, revision := range []int64{e.Created, e.MarkedAt, e.Gone} {
			at[revision] = true
		}
	}
	for _, limit := range f.limits {
		at[limit.At] = true
	}
	for lease := range f.leases {
		for _, key := range f.Keys[lease] {
			if key.At > own.Created {
				at[key.At] = true
			}
		}
	}
	at[own.MovedAt] = true
	end := own.Gone
	for _, s := range f.Steps(own) {
		end = max(end, s.Read) // that a watch told, when it had gone
	}
	maps.DeleteFunc(at, func(revision int64, _ bool) bool {
		return revision == 0 || own.Gone != 0 && revision > end
	})
	f.matter = slices.Sorted(maps.Keys(at))
}

// number returns the model's number of a revision, or of the one before it that matters.
func (f *follower) number(at int64) revision {
	i, matters := slices.BinarySearch(f.matter, at)
	if matters {
		i++
	}
	return revision(max(i, 1))
}

// start returns the states in which etcd may be about to put the permit. It returns false if they are not known.
func (f *follower) start() (all []state, ok bool) {
	own, limit := f.own, f.limits[0].Limit
	s := state{now: f.number(own.Created) - 1, limit: int8(limit.Permits), high: int8(limit.High),
		most: int8(limit.High), limitAt: f.number(f.limits[0].At)}
	for id, l := range f.leases {
		key, known := f.KeyBefore(id, own.Created)
		if !known {
			return nil, false
		}
		s.leases[l] = lease{granted: true, alive: !key.Deleted, told: true}
	}
	f.model = model{scenario: alone, traced: true}
	for i, e := range f.all {
		f.model.attempts = append(f.model.attempts, plan{weight: int8(layout.WeightOf(e.Key)), givesUp: i == 0})
		if i == 0 {
			continue
		}
		put := entry{attempt: int8(i), lease: f.leases[e.Session], created: f.number(e.Created)}
		if e.MarkedAt != 0 && e.MarkedAt < own.Created {
			put.mark, put.marked = f.number(e.Mark), f.number(e.MarkedAt)
		}
		s.entries[s.entryCount] = put
		s.entryCount++
	}
	for _, requeued := range []bool{true, false} {
		s.attempts[0].requeued = requeued // perhaps: its session may have lost a lease since the call began
		if all = append(all, s); own.Requeued {
			break
		}
	}
	return all, true
}

// events returns the put of the permit and all after it that may matter to it.
func (f *follower) events() (events []event) {
	own, steps := f.own, f.Steps(f.own)
	for _, at := range f.matter {
		if at < own.Created {
			continue
		}
		before := own.Before(at, steps)
		for _, s := range steps[:before] {
			events = append(events, f.step(s))
		}
		steps = steps[before:]
		h := happening{follower: f, at: at}
		switch {
		case at == own.Created:
			events = append(events, event{action: puts})
			continue
		case at == own.MovedAt: // it was held
			return events
		case at == own.MarkedAt:
			h.step = event{action: marks, mark: f.number(own.Mark)}
		case at == own.Gone && own.ByRequest && !f.EndsSession(own):
			h.step = event{action: removes}
		}
		if h.step.action != unseen {
			events = append(events, h.step)
		}
		events = append(events, event{action: happens, happen: &h})
	}
	for _, s := range steps {
		events = append(events, f.step(s))
	}
	return events
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
	e := event{action: judged, first: s.First, delays: s.Delays, cut: s.Unfound}
	if s.Ahead != "" && !s.First {
		e.ahead = math.MaxInt8
		for _, other := range f.own.Ahead {
			if other.Key == s.Ahead && other.Created == s.AheadCreated {
				e.ahead = f.number(other.Created)
			}
		}
	}
	return e
}

// A happening is what happens to the permit at a revision, beside its own step then.
type happening struct {
	*follower
	at   int64
	step event // its action is unseen if there is none
}

// to changes a state.
func (h *happening) to(s *state) {
	if h.step.action == unseen {
		s.now++
	}
	for lease, l := range h.leases {
		for _, key := range h.Keys[lease] {
			if key.At == h.at {
				s.leases[l].alive = !key.Deleted
			}
		}
	}
	for i := range s.entryCount {
		e := &s.entries[i]
		switch of := h.all[e.attempt]; {
		case e.deleted != 0:
		case of.Gone == h.at:
			e.deleted, e.revoked = s.now, !s.leases[e.lease].alive
		case of.MarkedAt == h.at && of != h.own:
			e.mark, e.marked = h.number(of.Mark), s.now
		}
	}
	for _, limit := range h.limits {
		if limit.At == h.at {
			s.limit, s.high, s.limitAt = int8(limit.Limit.Permits), int8(limit.Limit.High), s.now
		}
	}
}

func (h *happening) String() string {
	var parts []string
	for lease, l := range h.leases {
		for _, key := range h.Keys[lease] {
			switch {
			case key.At == h.at && key.Deleted:
				parts = append(parts, fmt.Sprintf("the session key of lease %d is deleted", l))
			case key.At == h.at:
				parts = append(parts, fmt.Sprintf("the session key of lease %d is put", l))
			}
		}
	}
	for _, e := range h.all {
		switch h.at {
		case e.Gone:
			parts = append(parts, fmt.Sprintf("permit %d is deleted", h.number(e.Created)))
		case e.MarkedAt:
			parts = append(parts, fmt.Sprintf("permit %d is marked with %d", h.number(e.Created), h.number(e.Mark)))
		}
	}
	for _, limit := range h.limits {
		if limit.At == h.at {
			parts = append(parts, fmt.Sprintf("the limit is %d, the highest %d", limit.Limit.Permits, limit.Limit.High))
		}
	}
	slices.Sort(parts)
	return fmt.Sprintf("at revision %d, number %d: %s", h.at, h.number(h.at), strings.Join(parts, ", "))
}

// refused is modeltrace.Model.Refused.
func (f *follower) refused(start []state, events []event) (wrong string, most int) {
	m := &f.model
	return modeltrace.Model[state, event]{
		Start: start,
		Steps: func(s *state) []modelsearch.Step[state] {
			m.steps = m.steps[:0]
			m.attemptSteps(s, 0)
			return m.steps
		},
		Unseen: func(s *state, st *modelsearch.Step[state]) bool { return actionOf(s, st) == unseen },
		Is: func(e event, s *state, st *modelsearch.Step[state]) bool {
			return st.Wrong == "" && actionOf(s, st) == e.action && m.isStep(&e, s, st)
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

// legend says which permits and leases the numbers stand for, and which limit there was.
func (f *follower) legend() string {
	limit := f.limits[0].Limit
	lines := []string{fmt.Sprintf("the limit was %d, the highest %d", limit.Permits, limit.High)}
	for _, e := range f.all {
		lines = append(lines, fmt.Sprintf("permit %d: %v", f.number(e.Created), e))
	}
	for lease, l := range f.leases {
		lines = append(lines, fmt.Sprintf("lease %d: %x", l, lease))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n\t")
}
