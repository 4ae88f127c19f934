package semmodel

import (
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
)

// Follow compares recorded runs with the model, permit by permit. What stood at a revision makes a state of the model.
// There each look of a process must mean what the model's look means, each mark must be an admission of the model, and
// a hold must follow from one of both. Not compared: how long a delay lasts, and who deletes a dead claim.
func Follow(h *modeltrace.History) modeltrace.Report {
	return h.Report(true, func(e *modeltrace.Entry) (wrong, stopped string) {
		f := follower{History: h, own: e}
		for _, other := range h.Entries {
			if other.Prefix == e.Prefix {
				f.all = append(f.all, other)
			}
		}
		return f.follow()
	})
}

type follower struct {
	*modeltrace.History
	own *modeltrace.Entry
	all []*modeltrace.Entry // of the semaphore
}

func (f *follower) follow() (wrong, stopped string) {
	e := f.own
	key, _ := f.KeyBefore(e.Session, e.Created)
	replaces := slices.ContainsFunc(f.all, func(o *modeltrace.Entry) bool {
		return o.Gone == e.Created && o.Session == e.Session
	})
	switch {
	case !e.Claimed:
		return "its put has put no claim", ""
	case e.ByRequest && (e.Cleared == 0 || e.Cleared > e.Gone): // before, if its lease of claims was lost
		return "its session has deleted it without its claim", ""
	case !(e.Turn && replaces) && !slices.Contains(f.Gates(e), key.At):
		return fmt.Sprintf("its put compared another session key: %v, not %d", f.Gates(e), key.At), ""
	}
	if wrong, stopped = f.checkMark(); wrong != "" || stopped != "" {
		return wrong, stopped
	}
	fits := e.Turn && e.MarkedAt != 0
	for _, step := range f.Steps(e) {
		switch {
		case step.Action == lease.Holds && (!fits || e.Turn && step.Read < e.MarkedAt):
			return "it holds, and has not been admitted", ""
		case step.Action != lease.Judged || e.Gone != 0 && e.Gone <= step.Read:
			continue
		}
		m, s, slots, stopped := f.at(step.Read)
		if stopped != "" {
			return "", stopped
		}
		what, matches := f.judges(m, s, slots, step)
		if !matches {
			return fmt.Sprintf("at %d it found %+v, and the model %s", step.Read, step, what), ""
		}
		fits = fits || what == "holds"
	}
	return "", ""
}

// judges reports whether a look means what the model's look means, and what that is.
func (f *follower) judges(m *model, s state, slots []*modeltrace.Entry, step lease.Step) (what string, matches bool) {
	for _, tries := range []bool{false, true} {
		t, look := s, m.position
		if m.attempts[0].tries = tries; f.own.Turn {
			look = m.look
		}
		look(&t, 0)
		a := &t.attempts[0]
		what = map[stage]string{waits: "waits", delays: "delays", ready: "holds", front: "is the front",
			admits: "admits", clears: "clears", converts: "does not fit", leaves: "leaves"}[a.stage]
		switch {
		case a.stage == waits:
			matches = step.Ahead == slots[a.behind].Key && step.AheadCreated == slots[a.behind].Created
		case a.stage != clears: // what delays may stand beside what is cleared
			matches = step.Ahead == "" && step.Delays == (a.stage == delays)
		default:
			matches = step.Ahead == ""
		}
		if matches {
			return what, true
		}
	}
	return what, false
}

// checkMark checks that the mark of a turn is an admission of the model, with all turns that were marked then.
func (f *follower) checkMark() (wrong, stopped string) {
	e := f.own
	if e.MarkedAt == 0 || e.Gone != 0 && e.Gone < e.MarkedAt {
		return "", ""
	}
	m, s, slots, stopped := f.at(e.MarkedAt - 1)
	if stopped != "" {
		return "", stopped
	}
	x := txn{kind: admit, known: known{limitAt: s.limitAt}}
	for k, o := range slots {
		if o.MarkedAt == e.MarkedAt {
			x.batch[k] = s.places[k].turn
		}
	}
	m.carryOut(&s, x)
	if all, _ := m.weights(&s, s.now()); all > s.limit {
		m.violated("limit: %d of %d permits count with its mark", all, s.limit)
	}
	return m.wrong, ""
}

func stood(o *modeltrace.Entry, rev int64) (entry, claim bool) {
	return o.Gone == 0 || o.Gone > rev, o.Claimed && (o.Cleared == 0 || o.Cleared > rev)
}

// at returns what stood at a revision as a state of the model, with the weights of all. The own place is the first, and
// that of the first attempt. What others have put is of the second attempt, which does nothing.
func (f *follower) at(rev int64) (m *model, s state, slots []*modeltrace.Entry, stopped string) {
	limit, revisions := modeltrace.LimitChange{}, []int64{0}
	for _, l := range f.Limits[f.own.Prefix] {
		if l.At <= rev {
			limit = l
		}
	}
	slots = append(slots, f.own)
	for _, o := range f.all {
		if entry, claim := stood(o, rev); o != f.own && o.Created <= rev && (entry || claim) {
			slots = append(slots, o)
		}
	}
	for _, o := range slots {
		revisions = append(revisions, o.Created)
		if layout.WeightOf(o.Key)*len(slots)+limit.Limit.Permits > 100 {
			return nil, s, nil, "the weights or the limit are larger than the model can count"
		}
	}
	if len(slots) > maxPlaces {
		return nil, s, nil, modeltrace.TooMany
	}
	revisions = append(revisions, limit.At)
	slices.Sort(revisions)
	number := func(rev int64) revision { return revision(slices.Index(revisions, rev)) }
	s = state{limit: int8(limit.Limit.Permits), most: int8(limit.Limit.Permits), limitAt: number(limit.At)}
	m = &model{places: int8(len(slots)), scenario: scenario{most: maxPlaces, attempts: []plan{
		{weight: int8(layout.WeightOf(f.own.Key))}, {key: maxPlaces - 1},
	}}}
	for k, o := range slots {
		m.weight[k] = int8(layout.WeightOf(o.Key))
		by := func(at int64) bool { return at != 0 && at <= rev }
		p := place{by: int8(min(k, 1)), marked: by(o.MarkedAt), moved: by(o.MovedAt)}
		entry, claim := stood(o, rev)
		if p.counts = !o.Turn || p.marked; claim {
			p.claim = number(o.Created)
		}
		if entry && o.Turn {
			p.turn = number(o.Created)
		} else if entry {
			p.permit = number(o.Created)
		}
		s.places[k] = p
	}
	return m, s, slots, ""
}
