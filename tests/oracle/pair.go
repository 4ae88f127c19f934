package oracle

import (
	"slices"
	"strings"
	"time"
)

// checkPair checks two holds that exclude each other.
func (j *judge) checkPair(a, b *Hold) {
	if a.rev > b.rev {
		a, b = b, a
	}
	if a.First == 0 || b.First == 0 { // suspended from the start
		return
	}
	e, both := a.lost(), a.Last-b.First
	switch {
	case b.Last < a.First:
		if j.excused(a, b) == "" {
			j.fail("%s held revision %d before %s held revision %d", b.Who, b.rev, a.Who, a.rev)
		}
	case both >= 0:
		why := j.excused(a, b)
		if why == "" {
			j.fail("%s (revision %d) and %s (revision %d) were held together for %v", a.Who, a.rev, b.Who, b.rev, both)
			return
		}
		j.verdict.count(OverlapPrefix + why + ", " + e.how())
		j.verdict.most(OverlapPrefix+why+", "+e.how(), both)
	case a.Told != 0 && e != nil && b.rev < e.gone.Revision: // b waited
		j.verdict.least(MarginPrefix+e.how(), -both)
	}
}

// newcomerWithin is how soon after the end of a hold another caller queues that is counted as a newcomer.
const newcomerWithin = 200 * time.Millisecond

// countNewcomers counts those who queued right after the entry of a hold was deleted by force, and were granted in the
// end: nothing but the claim of that entry tells them that it had a holder. Several holds have one entry, one after the
// other, if a writer has become a reader, or if a hold was detached.
func (j *judge) countNewcomers() {
	var lost []*entry
	former := make(map[*entry][]*Hold)
	for _, a := range j.holds {
		if e := a.lost(); e != nil && e.gone.Cause.forced() {
			if former[e] == nil {
				lost = append(lost, e)
			}
			former[e] = append(former[e], a)
		}
	}
	for _, e := range lost {
		j.verdict.count(ByForcePrefix + e.how())
		newcomers, beside := make(map[string]bool), false
		for _, b := range j.holds {
			soon := slices.ContainsFunc(b.entries, func(own *entry) bool {
				return own.put.After < e.gone.Before+newcomerWithin
			})
			if !soon || b.rev <= e.gone.Revision {
				continue
			}
			for _, a := range former[e] {
				if a.excludes(b) || j.exceed(a, b) {
					newcomers[b.kind()] = newcomers[b.kind()] || a.First != 0 && b.First != 0 && a.Last >= b.First
				}
			}
		}
		for kind, both := range newcomers {
			j.verdict.count(NewcomersOfPrefix + kind)
			if both {
				j.verdict.count(TwoHeldOfPrefix + kind)
			}
			beside = beside || both
		}
		if len(newcomers) > 0 {
			j.verdict.count(NewcomersPrefix + e.how())
		}
		if beside {
			j.verdict.count(TwoHeldPrefix + e.how())
		}
	}
}

// exceed reports whether two are permits that do not fit into the limit together.
func (j *judge) exceed(a, b *Hold) bool {
	of, own := a.entries[0], b.entries[0]
	return isPermit(a.Key) && of.Prefix == own.Prefix && of.weight()+own.weight() > j.limit(own.Prefix, b.rev)
}

// kind says what a hold is of.
func (h *Hold) kind() string {
	of, _, _ := strings.Cut(strings.TrimPrefix(h.Parts[0].Prefix, Keys), "/")
	several := slices.ContainsFunc(h.Parts, func(p Part) bool { return p.Prefix != h.Parts[0].Prefix })
	switch {
	case of == "sem":
		return "permit"
	case of != "lock":
		return of
	case several:
		return "set"
	case h.Parts[0].Shared:
		return "reader"
	}
	return "writer"
}

// excused returns why docs/guarantees.md does not promise that a was told before b held, or "".
func (j *judge) excused(a, b *Hold) string {
	switch e := a.lost(); {
	case e == nil || !e.gone.Cause.forced() && !e.removed():
		return ""
	case e.removed() && !j.couldBeTold(a, e):
		return "it had less than 6 s to be told"
	case j.disturbed(a.Process, e.gone.Before-j.Late, b.First):
		return "the process was stopped or cut off"
	case a.SlowPolls:
		return "its lease was not watched, and polls were slow"
	case a.Gap > lockDelay/2:
		return "the machine was too busy"
	}
	return ""
}
