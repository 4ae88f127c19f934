//go:build linux

package main

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/tests/models/leasemodel"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// said is a step of a lease that a process has said.
type said struct {
	lease.Step
	Process string
	When    time.Duration // by sinceBoot
}

// followLeases compares the renewals with their model.
func (rec *recorded) followLeases() leasemodel.Report {
	var all []leasemodel.Said
	for _, s := range rec.Renewals {
		all = append(all, leasemodel.Said{Step: s.Step, Late: rec.mayBeLate(s)})
	}
	return leasemodel.Follow(all)
}

const (
	// stall is for how long a process does not run when that is a gap of its heartbeat. A step that is told too late, by
	// the least margin of a lease, has waited for four of these at least: several goroutines take part in it.
	stall = 50 * time.Millisecond

	// gapsOfALate is for how long in all a process did not run shortly before a step that gaps excuse: half of the least
	// margin of a lease. longGap is how long a gap is that excuses what the oracle judges, by seconds.
	gapsOfALate, longGap = 100 * time.Millisecond, time.Second

	// afterStall is how long a stall has effects after its end.
	afterStall = time.Second
)

// mayBeLate reports whether the process was stopped, had a gap that is a fault now, or the machine was too busy,
// shortly before it said a step.
func (rec *recorded) mayBeLate(s said) bool {
	during := func(f oracle.Fault) bool { return f.From <= s.When && s.When <= f.To+afterStall }
	own := func(f oracle.Fault) bool { return f.Process == s.Process && during(f) }
	var gaps time.Duration
	for _, f := range rec.gaps {
		if own(f) {
			gaps += f.To - f.From
		}
	}
	return gaps >= gapsOfALate ||
		slices.ContainsFunc(rec.Faults, func(f fault) bool { return f.What == stopsProcess && own(f.Fault) }) ||
		slices.ContainsFunc(rec.Record.Faults, func(f oracle.Fault) bool {
			return f.Process == oracle.Everywhere && during(f)
		})
}

// followedLeases says of how many leases each step was one of the model's. One that is not is a violation.
type followedLeases struct {
	Leases, Renewals   int
	Dropped            int // replies of an earlier term than the other
	Suspended, Expired int
	Timely             int // of these: told in time by a process that ran
	Refused            int // leases with a step that the model does not have
}

const refusedLeases = "leases with a step that the model refuses"

func leasesOf(c map[string]int) followedLeases {
	return followedLeases{c[leasemodel.Followed], c[leasemodel.Renewed], c[leasemodel.Dropped], c[leasemodel.Suspended],
		c[leasemodel.Expired], c[leasemodel.Timely], c[refusedLeases]}
}
