package oracle

import (
	"slices"
	"strings"
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
		// Perhaps a was granted before its entry was removed by force, and heard of the grant afterwards.
		if j.excused(a, b) == "" || e.gone.Before > a.First {
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

// excused returns why docs/guarantees.md does not promise that a was told before b held, or "".
func (j *judge) excused(a, b *Hold) string {
	switch e := a.lost(); {
	case e == nil || !e.gone.Cause.forced() && !e.removed():
		return ""
	case e.gone.Cause == ByDeletion:
		return "a loss is told within 6 s"
	case e.removed() && !j.couldBeTold(a, e):
		return "it had less than 6 s to be told"
	case !j.waited(a, b, e.gone.Revision) && !j.knew(b, e.gone):
		return "a newcomer waits for no lock delay"
	case j.disturbed(a.Process, e.gone.Before-j.Late, b.First):
		return "the process was stopped or cut off"
	case a.SlowPolls:
		return "its lease was not watched, and polls were slow"
	case a.Gap > promptly/2:
		return "the machine was too busy"
	}
	return ""
}

// knew reports whether the new owner of a shard was a member, and knew the others, when the lease of the one before was
// revoked. Then it sees that one vanish, and waits for the lock delay although it had no entry.
func (j *judge) knew(b *Hold, revoked *Change) bool {
	joined := j.joined[b.Lease]
	return strings.HasPrefix(b.Key, shardKeys) && joined != nil &&
		j.calmSince(b.Process, joined.Before, revoked.After)+knownWithin < revoked.After
}

// waited reports whether the caller of b waited behind a when that was revoked at a revision. It may have had another
// entry then: that of an earlier attempt, or, if it waited in a line in memory, one that was handed off to it. Of
// mutexes those that queued later wait for one that waited, and count as well.
func (j *judge) waited(a, b *Hold, revoked int64) bool {
	for _, own := range b.entries {
		if !slices.ContainsFunc(a.Parts, own.excludes) {
			continue
		}
		all := j.queues[own.Prefix]
		if j.OnlyMutexes && slices.ContainsFunc(all, func(e *entry) bool {
			return e.put.Revision < b.rev && e.stood(b.rev-1)
		}) {
			return true
		}
		earlier := map[*entry]bool{own: true} // and own
		for _, e := range slices.Backward(all) {
			if e.Shared != own.Shared || !earlier[e] && !e.ownedBy(b.Who) {
				continue
			}
			earlier[e] = true
			for _, off := range all { // handed off
				if off.Shared == own.Shared && off.gone != nil && off.gone.Revision == e.put.Revision &&
					off.gone.Prev.Lease == e.put.Kv.Lease {
					earlier[off] = true
				}
			}
		}
		for e := range earlier {
			if e.stood(revoked-1) && e.put.Revision > a.rev {
				return true
			}
		}
	}
	return false
}
