package oracle

import (
	"slices"
	"time"
)

// checkRelease checks a hold whose release was confirmed: its entries are gone, unless MinHold keeps them.
func (j *judge) checkRelease(h *Hold) {
	if h.Unlocked == 0 {
		return
	}
	if h.TakenUntil == 0 {
		for _, e := range h.entries {
			if e.gone == nil || e.gone.After > h.Unlocked {
				j.fail("%s: its release returned nil at %v, and %s of revision %d was not deleted before", h.Who, h.Unlocked,
					e.key, h.rev)
			}
		}
		return
	}
	j.verdict.count(Taken)
	e := h.lost()
	if e == nil || e.gone.Cause.forced() || e.removed() {
		return
	}
	if early := h.TakenUntil - e.gone.Before; early > 0 {
		j.fail("%s: the name was free %v before MinHold was over", h.Who, early)
	}
}

// checkPrompt checks that no lock delay follows a release, also not that of a Close. It looks only where nothing else
// can hold the waiter up: one entry was ahead when it queued, and stood until its watch was armed, its session key
// outlived it, and the network and the cluster work.
func (j *judge) checkPrompt(h *Hold) {
	if !j.Prompt || len(h.entries) > 1 || slices.ContainsFunc(j.holds, func(other *Hold) bool {
		return other.rev == h.rev && other.sharesQueue(h) && other.Granted < h.Granted // downgraded, or attached
	}) {
		return
	}
	own := h.entries[0]
	var ahead *entry
	for _, e := range j.queues[own.Prefix] {
		switch {
		case e.put.Revision < h.rev && e.stood(h.rev-1) && e.excludes(own.Part):
			if ahead != nil {
				return
			}
			ahead = e
		case e != own && e.ownedBy(h.Who), e.gone != nil && e.gone.Revision == h.rev: // queued again, handed off
			return
		}
	}
	if ahead == nil || ahead.gone == nil || ahead.gone.Revision == h.rev || ahead.gone.Cause != ByRequest {
		return
	}
	for _, c := range j.sessionKey(ahead.session) {
		if c.Deleted && c.Revision <= ahead.gone.Revision {
			return
		}
	}
	put, free := own.put.Before, ahead.gone.Before
	wait := h.Granted - free
	if free <= put+time.Second || wait <= promptly || j.disturbed(h.Process, put, h.Granted) ||
		slices.ContainsFunc(j.Unsteady, func(f Fault) bool { return f.From < h.Granted && f.To > put }) {
		return
	}
	j.fail("%s: granted %v after the release of the only entry that was ahead", h.Who, wait)
}
