//go:build linux

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/tests/oracle"
)

const (
	// fullLength is that of a run that counts as evidence of what seldom happens.
	fullLength = time.Hour
	// enoughNewcomers is how many such a run must have, after leases that were revoked by hand.
	enoughNewcomers = 1000
)

// What the statistics have of callers.
const (
	tryLocks    = "calls of TryLock, of a mutex"
	tryRefused  = "calls of TryLock that found another caller"
	deadlines   = "calls whose deadline passed while they waited"
	crowds      = "callers in crowds that came at once"
	crowdsServe = "callers in crowds that held"
	detached    = "holds that were detached"
	attached    = "holds that went on by a ticket"
)

// denominators say how often what a promise is about has happened.
type denominators struct {
	Revoked, Deleted   int // holds whose lease was revoked, and whose entry was deleted, by hand
	AfterRevocation    int // of the first: another caller queued within 200 ms, and held
	AfterDeletion      int // of the second, likewise
	TwoHeldRevocations int // times in which such a newcomer held beside the former holder
	TwoHeldDeletions   int

	Newcomers map[string]newcomersOf `json:",omitempty"` // by their kind; older records have none

	TryLocks, TryRefused      int
	Calls, Deadlines          int // of the calls: each has a deadline, and of so many it passed
	CrowdCallers, CrowdServed int

	Tickets tickets `json:",omitzero"` // older records have none
}

// tickets are holds that were detached, and those of them that were attached.
type tickets struct{ Detached, Attached int }

// newcomersOf are those of one kind, after holds of any.
type newcomersOf struct {
	Count   int
	TwoHeld int `json:",omitempty"` // of these: beside the former holder
}

func denominatorsOf(c map[string]int) denominators {
	revoked, deleted := oracle.ByRevocation.String(), oracle.ByDeletion.String()
	newcomers := make(map[string]newcomersOf)
	for kind, n := range below(c, oracle.NewcomersOfPrefix) {
		newcomers[kind] = newcomersOf{n, c[oracle.TwoHeldOfPrefix+kind]}
	}
	return denominators{
		Revoked: c[oracle.ByForcePrefix+revoked], Deleted: c[oracle.ByForcePrefix+deleted],
		AfterRevocation: c[oracle.NewcomersPrefix+revoked], AfterDeletion: c[oracle.NewcomersPrefix+deleted],
		TwoHeldRevocations: c[oracle.TwoHeldPrefix+revoked], TwoHeldDeletions: c[oracle.TwoHeldPrefix+deleted],
		TryLocks: c[tryLocks], TryRefused: c[tryRefused], Calls: c[calls], Deadlines: c[deadlines],
		CrowdCallers: c[crowds], CrowdServed: c[crowdsServe], Newcomers: newcomers,
		Tickets: tickets{c[detached], c[attached]},
	}
}

// join adds those of another campaign.
func (d *denominators) join(other denominators) {
	for _, pair := range []struct {
		sum *int
		n   int
	}{
		{&d.Revoked, other.Revoked}, {&d.Deleted, other.Deleted}, {&d.AfterRevocation, other.AfterRevocation},
		{&d.AfterDeletion, other.AfterDeletion}, {&d.TwoHeldRevocations, other.TwoHeldRevocations},
		{&d.TwoHeldDeletions, other.TwoHeldDeletions}, {&d.TryLocks, other.TryLocks}, {&d.TryRefused, other.TryRefused},
		{&d.Calls, other.Calls}, {&d.Deadlines, other.Deadlines}, {&d.CrowdCallers, other.CrowdCallers},
		{&d.CrowdServed, other.CrowdServed}, {&d.Tickets.Detached, other.Tickets.Detached},
		{&d.Tickets.Attached, other.Tickets.Attached},
	} {
		*pair.sum += pair.n
	}
	for kind, n := range other.Newcomers {
		if d.Newcomers == nil {
			d.Newcomers = make(map[string]newcomersOf)
		}
		was := d.Newcomers[kind]
		d.Newcomers[kind] = newcomersOf{was.Count + n.Count, was.TwoHeld + n.TwoHeld}
	}
}

// rows say what happened, and how often.
func (d denominators) rows() [][2]string {
	byHand := func(what string, n, newcomers, both int) [2]string {
		return [2]string{what + " by hand, and a newcomer", fmt.Sprintf(
			"%d holds, %d of them with a newcomer within 200 ms, two held %d times", n, newcomers, both)}
	}
	rows := [][2]string{
		byHand("leases revoked", d.Revoked, d.AfterRevocation, d.TwoHeldRevocations),
		byHand("entries deleted", d.Deleted, d.AfterDeletion, d.TwoHeldDeletions),
	}
	if len(d.Newcomers) > 0 {
		var kinds []string
		for _, kind := range slices.Sorted(maps.Keys(d.Newcomers)) {
			n := d.Newcomers[kind]
			kinds = append(kinds, fmt.Sprintf("%s %d, two held %d times", kind, n.Count, n.TwoHeld))
		}
		rows = append(rows, [2]string{"such newcomers, by kind", strings.Join(kinds, "; ")})
	}
	if d.Tickets.Detached > 0 {
		rows = append(rows, [2]string{"holds that were detached", fmt.Sprintf("%d, %d of them went on by their tickets",
			d.Tickets.Detached, d.Tickets.Attached)})
	}
	return append(rows, [][2]string{
		{"`TryLock` of a mutex", fmt.Sprintf("%d calls, %d of them found another caller", d.TryLocks, d.TryRefused)},
		{"calls with a deadline", fmt.Sprintf("%d, of which it passed while %d waited", d.Calls, d.Deadlines)},
		{fmt.Sprintf("crowds: %d callers at once", crowd), fmt.Sprintf("%d callers, %d of them held", d.CrowdCallers,
			d.CrowdServed)},
	}...)
}

// provesLittle says why a run proves little, or "".
func (s *summary) provesLittle() string {
	if s.Hours >= fullLength.Hours() && s.Denominators.AfterRevocation < enoughNewcomers {
		return fmt.Sprintf("a run of full length needs %d newcomers after leases that were revoked by hand, and it had %d",
			enoughNewcomers, s.Denominators.AfterRevocation)
	}
	return ""
}

// countCall counts a report of a call.
func (f *round) countCall(ev event) {
	inCrowd := strings.Contains(ev.Who, crowdMark)
	switch {
	case ev.What == wants:
		f.stats.Counts[calls]++
		if ev.Try {
			f.stats.Counts[tryLocks]++
		}
		if inCrowd {
			f.stats.Counts[crowds]++
		}
	case ev.What == held && inCrowd:
		f.stats.Counts[crowdsServe]++
	case ev.What == held && ev.Attached:
		f.stats.Counts[attached]++
	case ev.What == ended && ev.Detached:
		f.stats.Counts[detached]++
	case ev.What == failed && ev.Taken:
		f.stats.Counts[tryRefused]++
	case ev.What == failed && ev.Over:
		f.stats.Counts[deadlines]++
	}
}
