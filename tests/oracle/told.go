package oracle

import "time"

// checkTold checks that a holder was told in time that it no longer holds, or that it is asked to let go.
func (j *judge) checkTold(h *Hold) {
	if e := h.lost(); e != nil {
		j.checkLoss(h, e)
	}
	for _, e := range h.entries {
		if e.notice == nil || h.Last <= e.notice.Before {
			continue
		}
		j.verdict.most("Check was nil after an administrator had asked", h.Last-e.notice.Before)
		if late, _ := j.calm(h.Process, andCluster, max(e.notice.Before, h.Granted), h.Last); late > toldWithin {
			j.fail("%s: Check returned nil %v after an administrator had asked it to let go", h.Who, late)
		}
	}
}

// checkLoss checks a hold of which an entry is gone.
func (j *judge) checkLoss(h *Hold, e *entry) {
	at, how := e.gone.Before, e.how()
	switch {
	case e.removed():
		j.verdict.count(ByRemoval)
	case e.gone.Cause.forced():
		j.verdict.count(ByForce)
	}
	if h.Told != 0 {
		j.verdict.count(LostPrefix + how)
	}
	if e.gone.Cause == ByLease && !e.removed() && h.Suspended > at {
		j.fail("%s: its lease ended at %v, and at %v Check reported only a suspension", h.Who, at, h.Suspended)
	}
	if h.Last <= at {
		return
	}
	late := h.Last - at
	j.verdict.most("Check was nil after the entry was gone: "+how, late)
	if e.gone.Cause.forced() || e.removed() && !j.couldBeTold(h, e) {
		within := toldWithin
		if e.gone.Cause.forced() && e.gone.Cause != ByDeletion {
			within = revocationToldWithin
		}
		if late, _ = j.calm(h.Process, andCluster, max(at, h.Granted), h.Last); late <= within {
			return
		}
	}
	j.fail("%s: Check returned nil %v after its entry of revision %d was deleted: %s", h.Who, late, h.rev, how)
}

// couldBeTold reports whether the holder of an entry that an administrator has removed had six seconds to be told
// before the entry was deleted: the notice stood, and its connection worked and was fast. An attempt that does not hold
// yet must find the notice before it does, unless it is told of it in time.
func (j *judge) couldBeTold(h *Hold, e *entry) bool {
	return j.Fast && e.gone.After-j.calmSince(h.Process, e.notice.Before, e.gone.Before) > 6*time.Second
}
