package queuemodel

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
)

// alone is the model of an entry among those of others. These have no attempts, only keys.
var alone = scenario{name: "an entry of a recorded run", attempts: []plan{{entries: []member{{}}, givesUp: true}}}

// unclaimed is why an entry is not followed.
const unclaimed = "its put has put no claim"

// Follow compares the steps that processes say of their entries with the model. They are in order for each process. Of
// the record it needs the changes of etcd's store. Package semmodel follows permits.
func Follow(h *modeltrace.History) modeltrace.Report {
	return h.Report(false, func(e *modeltrace.Entry) (wrong, stopped string) {
		f := follower{History: h, own: e, keys: map[*modeltrace.Entry]int8{e: 0}}
		return f.follow()
	})
}

// A follower follows one entry.
type follower struct {
	*modeltrace.History
	own  *modeltrace.Entry
	keys map[*modeltrace.Entry]int8 // of the entry, and of those ahead
}

// A happening is what happens at one revision, but for a removal by the entry's own session.
type happening struct {
	at      int64
	change  change
	written bool // another client writes into the entry, or moves it to another lease
}

// follow returns what is wrong with the entry, or why it is not followed to its end.
func (f *follower) follow() (wrong, stopped string) {
	key, known := f.KeyBefore(f.own.Session, f.own.Created)
	switch {
	case len(f.own.Ahead) >= maxKeys:
		return "", modeltrace.TooMany
	case !known:
		return "", modeltrace.NoSessionKey
	case !f.own.Claimed:
		return "", unclaimed
	case f.own.MovedAt != 0 && f.own.Cleared > f.own.MovedAt:
		return fmt.Sprintf("which was moved to another lease at %d: its claim was deleted at %d only", f.own.MovedAt,
			f.own.Cleared), ""
	}
	m := newModel(alone)
	m.alone, m.n, m.modes[0].write = true, maxKeys/2, !f.own.Shared
	for i, e := range f.own.Ahead {
		k := int8(i) + 1
		f.keys[e], m.modes[k] = k, member{k, 0, !e.Shared}
	}
	m.findRivals(int8(len(f.keys)))
	start := f.start(m, !key.Deleted && slices.Contains(f.Gates(f.own), key.At))
	wrong, most := m.refusedFrom([]state{start}, f.events(f.Steps(f.own)))
	if most > modeltrace.MostStates {
		return "", modeltrace.TooManyStates
	}
	if wrong != "" {
		wrong += "\n\t" + f.legend()
	}
	return wrong, ""
}

// start returns the state in which etcd may be about to put the entry. sent: a put that compares the present gate was
// sent.
func (f *follower) start(m *model, isSent bool) state {
	s := m.start()
	s.attempts[0].stage = sent
	if isSent {
		s.keep(requestCopy{kind: latePut})
	}
	for i, e := range f.own.Ahead {
		q, r := &s.keys[i+1], revision(i+1)
		if i > 0 && e.Created == f.own.Ahead[i-1].Created {
			r = max(s.keys[i].e, s.keys[i].c)
		}
		if e.Gone == 0 || e.Gone > f.own.Created {
			q.e = r
		}
		if e.Claimed && (e.Cleared == 0 || e.Cleared > f.own.Created) {
			q.c = r
		}
	}
	return s
}

// events returns the put of the entry and all after it that may matter to it.
func (f *follower) events(steps []lease.Step) []event {
	events := []event{{action: changes, change: change{put: bit(0), claimed: bit(0)}}}
	for _, at := range f.moments() {
		before := f.own.Before(at, steps)
		for _, s := range steps[:before] {
			events = append(events, f.step(s))
		}
		steps = steps[before:]
		h := happening{at: at, change: f.changeAt(at), written: at == f.own.MovedAt || at == f.own.NoticedAt}
		if own := h.change.of(0); at == f.own.Gone && f.own.ByRequest { // by its session
			events = append(events, event{action: changes, change: own})
			h.change = h.change.without(own)
		}
		if h != (happening{at: at}) {
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
	for e := range f.keys {
		at[e.Gone], at[e.Cleared] = true, true
	}
	maps.DeleteFunc(at, func(rev int64, _ bool) bool {
		return rev <= f.own.Created || f.own.Gone != 0 && rev > f.own.Gone
	})
	return slices.Sorted(maps.Keys(at))
}

// changeAt returns which entries and claims are deleted at a revision.
func (f *follower) changeAt(at int64) (c change) {
	for e, k := range f.keys {
		c.gone |= when(e.Gone == at, k)
		c.unclaimed |= when(e.Cleared == at, k)
	}
	return c
}

// of returns the part of a change that is about one key.
func (c change) of(k int8) change {
	return change{gone: c.gone & bit(k), unclaimed: c.unclaimed & bit(k)}
}

func (c change) without(part change) change {
	return change{gone: c.gone &^ part.gone, unclaimed: c.unclaimed &^ part.unclaimed}
}

// step returns a step that the process has said as an event.
func (f *follower) step(s lease.Step) event {
	switch s.Action {
	case lease.Waited:
		return event{action: waited}
	case lease.Holds:
		return event{action: holds}
	default: // lease.Judged; the follower's caller has taken lease.Sends
	}
	e := event{action: judged, ahead: nothing, delays: s.Delays}
	if s.Ahead != "" {
		e.ahead = maxKeys // that of an entry which is not ahead
	}
	for other, k := range f.keys {
		if other.Key == s.Ahead && other.Created == s.AheadCreated {
			e.ahead = k
		}
	}
	return e
}

// to changes a state.
func (h *happening) to(s *state) {
	for k := range int8(maxKeys) {
		q := &s.keys[k]
		if h.change.gone.has(k) {
			q.e = 0
		}
		if h.change.unclaimed.has(k) {
			q.c = 0
		}
	}
	s.keys[0].written = s.keys[0].written || h.written
}

func (h *happening) String() string {
	text := event{action: changes, change: h.change}.String()
	if h.written {
		text += "; the entry is written to, or moved"
	}
	return fmt.Sprintf("at revision %d, %s", h.at, text)
}

// legend says which entries the keys are.
func (f *follower) legend() string {
	var lines []string
	for e, k := range f.keys {
		lines = append(lines, fmt.Sprintf("entry %d: %v", k, e))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n\t")
}
