package oracle

import (
	"fmt"
	"slices"
	"time"
)

// checkFronts checks that a session whose connection works soon holds by entries that are at the front of their queues,
// or removes them. Otherwise all waiters behind them would be stuck.
func (j *judge) checkFronts() {
	attempts := make(map[string][]*entry) // the entries that one put has created
	var order []string
	for _, e := range j.all {
		id := fmt.Sprint(e.put.Revision, " ", e.owner())
		if attempts[id] == nil {
			order = append(order, id)
		}
		attempts[id] = append(attempts[id], e)
	}
	held := make(map[*entry][]*Hold)
	for _, h := range j.holds {
		held[h.entries[0]] = append(held[h.entries[0]], h)
	}
	for _, id := range order {
		entries := attempts[id]
		lease, known := j.Leases[entries[0].session]
		if !known {
			continue
		}
		var holds []*Hold
		for _, e := range entries {
			holds = append(holds, held[e]...)
		}
		j.checkFront(entries, lease, holds)
	}
}

// checkFront checks the entries of one attempt, with the holds by them, until they are no longer its session's. Some
// may be deleted by hand before the others: a waiter finds that out by its next read.
func (j *judge) checkFront(entries []*entry, lease Lease, holds []*Hold) {
	owner, until := entries[0].owner(), j.end()
	if lease.Ended != 0 {
		until = lease.Ended
	}
	for _, e := range entries {
		if e.left != nil {
			until = min(until, e.left.After)
		}
	}
	granted := grantedWithin
	if j.Lossy {
		granted *= 2
	}
	limit := granted
	for begin := entries[0].put.Before; len(entries) > 0; limit = granted + foundWithin {
		end := j.end()
		for _, e := range entries {
			if e.gone != nil {
				end = min(end, e.gone.After)
			}
		}
		for _, at := range j.atFront(entries, owner, begin, min(end, until)) {
			for _, idle := range without(at, holds) {
				_, wait := j.calm(lease.Process, andSick, idle.From, idle.To)
				j.verdict.most("at the front without a holder, apart from the time of faults", wait)
				if wait > limit {
					j.fail("%s: %s of revision %d was at the front for %v without a holder", owner, entries[0].key,
						entries[0].put.Revision, wait)
				}
			}
		}
		var rest []*entry
		for _, e := range entries {
			if e.gone != nil && e.gone.After > end {
				rest = append(rest, e)
			}
		}
		begin, entries = end, rest
	}
}

type interval struct{ From, To time.Duration }

// atFront returns when nothing was ahead of entries that stood from begin to end.
func (j *judge) atFront(entries []*entry, owner string, begin, end time.Duration) (all []interval) {
	if own := entries[0]; isPermit(own.key) {
		return j.timesToFit(own, begin, end)
	}
	for _, own := range entries {
		for _, e := range j.queues[own.Prefix] {
			switch {
			case !e.isAhead(own, owner):
			case e.gone == nil:
				return nil
			default:
				begin = max(begin, e.gone.Before)
			}
		}
	}
	if begin >= end {
		return nil
	}
	return []interval{{begin, end}}
}

// timesToFit returns when a permit fitted into the limit.
func (j *judge) timesToFit(own *entry, begin, end time.Duration) (all []interval) {
	changes := []*Change{own.put}
	for _, e := range j.queues[own.Prefix] {
		if e.put.Revision < own.put.Revision && e.gone != nil && e.gone.Revision > own.put.Revision {
			changes = append(changes, e.gone)
		}
	}
	for _, c := range j.limitChanges(own.Prefix) {
		if c.Revision > own.put.Revision {
			changes = append(changes, c)
		}
	}
	slices.SortFunc(changes, func(a, b *Change) int { return int(a.Revision - b.Revision) })
	for i, c := range changes {
		from, to := max(begin, c.Before), end
		if i+1 < len(changes) {
			to = min(to, changes[i+1].After)
		}
		switch {
		case from >= to || !j.fits(own, c.Revision):
		case len(all) > 0 && i > 0 && j.fits(own, changes[i-1].Revision):
			all[len(all)-1].To = to
		default:
			all = append(all, interval{from, to})
		}
	}
	return all
}

// without returns the parts of an interval in which none of the holds was held.
func without(at interval, holds []*Hold) (idle []interval) {
	slices.SortFunc(holds, func(a, b *Hold) int { return int(a.Granted - b.Granted) })
	for _, h := range holds {
		if h.Granted > at.From {
			idle = append(idle, interval{at.From, min(h.Granted, at.To)})
		}
		if h.Ended == 0 {
			return idle
		}
		at.From = max(at.From, h.Ended)
	}
	if at.From < at.To {
		idle = append(idle, at)
	}
	return idle
}
