package oracle

import "slices"

// checkGrant finds the entries of a hold, which must have been put at one revision, and checks that it could hold by
// them at the revision at which it was seen to. It reports whether it has found all of them.
func (j *judge) checkGrant(h *Hold) bool {
	h.rev, h.entries = h.Token.Revision(), nil
	if h.Token == 0 { // the entry was the last that had this key
		for _, e := range j.queues[PartOf(h.Key).Prefix] {
			if e.key == h.Key && e.put.Revision <= h.AcquiredAt {
				h.rev = e.put.Revision
			}
		}
	}
	for _, p := range h.Parts {
		i := slices.IndexFunc(j.queues[p.Prefix], func(e *entry) bool {
			return e.put.Revision == h.rev && e.Shared == p.Shared && e.isOf(h.Lease)
		})
		if i < 0 {
			j.fail("%s: granted, and no entry below %s was put at revision %d", h.Who, p.Prefix, h.rev)
			continue
		}
		h.entries = append(h.entries, j.queues[p.Prefix][i])
	}
	if len(h.entries) < len(h.Parts) {
		return false
	}
	if missing, ahead := j.standing(h, h.AcquiredAt); missing != nil || ahead != nil {
		j.fail("%s: by entries of revision %d (token %d) granted at revision %d, where %v was missing, and %v was ahead",
			h.Who, h.rev, h.Token, h.AcquiredAt, missing, ahead)
	}
	if made := j.made(h.AcquiredAt); made != nil && made.After > h.Granted {
		j.fail("%s: held %v before revision %d, at which it is said to be held", h.Who, made.After-h.Granted, h.AcquiredAt)
	}
	j.verdict.count(Granted)
	if len(h.Parts) > 1 {
		j.verdict.count(InSeveralQueues)
	}
	if h.shared() && slices.ContainsFunc(j.holds, func(other *Hold) bool {
		return other.shared() && other.sharesQueue(h) && other.First < h.Granted && other.Last >= h.Granted
	}) {
		j.verdict.count(Together)
	}
	if slices.ContainsFunc(j.holds, h.continues) {
		j.verdict.count(Downgraded)
	}
	return true
}

// standing returns an entry of a hold that was missing at a revision, and one that excludes it and was ahead of it.
func (j *judge) standing(h *Hold, at int64) (missing, ahead *entry) {
	for _, own := range h.entries {
		if !own.stood(at) {
			missing = own
		}
		for _, e := range j.queues[own.Prefix] {
			if e.stood(at) && e.isAhead(own, h.Who) {
				ahead = e
			}
		}
	}
	return missing, ahead
}

// isAhead reports whether an entry keeps another from being held, which is that of a certain owner.
func (e *entry) isAhead(of *entry, owner string) bool {
	return e != of && e.excludes(of.Part) && (e.put.Revision < of.put.Revision ||
		e.put.Revision == of.put.Revision && !e.ownedBy(owner))
}
