package leasemodel

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
)

// Said is a step that a session has said.
type Said struct {
	lease.Step
	Late bool // its process was stopped or had no processor, so it may have come late
}

// A Report is what Follow has found.
type Report struct {
	Counts  map[string]int // by the constants below
	Refused []string       // for each lease with a step that the model does not have: its steps up to that
}

// What Counts has.
const (
	Followed  = "leases in the model"
	Renewed   = Followed + ": renewals that counted"
	Dropped   = Followed + ": replies of an earlier term than the other"
	Suspended = Followed + ": suspensions that were told"
	Expired   = Followed + ": lost by the clock"
	Timely    = Followed + ": suspensions and losses by the clock that were told in time, by a process that ran"
)

// Follow compares the steps that sessions say of their leases with the model. They are in order for each lease. The
// model of etcd is not needed: it may be at any term at any time.
func Follow(said []Said) Report {
	r := Report{Counts: make(map[string]int)}
	of := make(map[clientv3.LeaseID][]Said)
	var order []clientv3.LeaseID
	for _, s := range said {
		if of[s.Lease] == nil {
			order = append(order, s.Lease)
		}
		of[s.Lease] = append(of[s.Lease], s)
	}
	for _, id := range order {
		f := follower{said: of[id], counts: make(map[string]int)}
		if wrong := f.follow(); wrong != "" {
			r.Refused = append(r.Refused, fmt.Sprintf("the model refuses a step of lease %x, %s", int64(id), wrong))
			continue
		}
		r.Counts[Followed]++
		for what, n := range f.counts {
			r.Counts[what] += n
		}
	}
	return r
}

// longest is for how long a lease is followed. A moment cannot be much later.
const longest = 30 * time.Minute

// A follower follows one lease.
type follower struct {
	said   []Said
	model  model
	margin moment
	base   time.Duration // when the Grant was sent

	events []event
	now    moment
	begun  moment // how late after the suspension the session began, if no renewal counts yet; -1: it has not begun
	told   bool   // of the suspension
	until  moment
	due    bool // the suspension, when the latest renewal was confirmed
	counts map[string]int
}

// follow returns what is wrong with the steps, or "".
func (f *follower) follow() string {
	granted := f.said[0]
	if granted.Action != lease.Granted {
		return "which does not begin with its Grant"
	}
	f.base, f.margin = granted.Sent, f.moment(granted.Margin)
	f.model.scenario = scenario{anyEtcd: true, copies: maxCopies, trust: f.moment(granted.TTL - granted.Margin),
		terms: int8(len(f.terms()))}
	for _, s := range f.inOrder() {
		if s.At-f.base < longest {
			f.add(s)
		}
	}
	wrong, most := f.model.refused(f.events)
	if most > modeltrace.MostStates {
		return "with which more states agree than are looked at"
	}
	return wrong
}

// isDue reports whether the lease is suspended by the clock.
func (f *follower) isDue() bool { return f.now >= f.model.suspendAt(&state{trusted: f.until}) }

func (f *follower) moment(d time.Duration) moment { return moment(d / time.Microsecond) }

func (f *follower) since(at time.Duration) moment { return f.moment(at - f.base) }

// terms returns those of the replies, in order. The model counts them from 1.
func (f *follower) terms() (all []uint64) {
	for _, s := range f.said {
		if s.Term != 0 {
			all = append(all, s.Term)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// inOrder returns the steps that matter, with the latest time of all up to each: a time is read a little before a step
// is said. Only those of requests are said without the mutex of the lease, so their times decide. What comes of no
// confirmation is left out: requests that are not answered, copies of one moment, and what follows the last one.
func (f *follower) inOrder() (all []Said) {
	last, answered, latest := 0, make(map[lease.Step]bool), time.Duration(0)
	for i, s := range f.said {
		if s.Action == lease.Confirmed {
			last = i
		}
		answered[lease.Step{Action: requestOf[s.Action], Sent: s.Sent}] = true
	}
	for i, s := range f.said {
		request := lease.Step{Action: s.Action, Sent: s.Sent}
		isRequest := s.Action == lease.Renews || s.Action == lease.Reads
		if i > last && (isRequest || requestOf[s.Action] != "") || isRequest && !answered[request] {
			continue
		}
		delete(answered, request)
		if !isRequest {
			latest = max(latest, s.At)
			s.At = latest
		}
		all = append(all, s)
	}
	slices.SortStableFunc(all, func(a, b Said) int { return cmp.Compare(a.At, b.At) })
	return all
}

var requestOf = map[lease.Action]lease.Action{lease.Acknowledged: lease.Renews, lease.Proved: lease.Reads}

// add adds the events that a step is.
func (f *follower) add(s Said) {
	late := f.margin + f.begun
	if s.Late || f.begun < 0 {
		late = math.MaxInt32 / 2
	}
	if at := f.since(s.At); at > f.now {
		f.now = at
		f.events = append(f.events, event{at: at, action: passes, suspended: f.told, late: late})
	}
	if !s.Late && (s.Action == lease.Suspends || s.Cause == holdfast.CauseExpired) {
		f.counts[Timely]++
	}
	e := event{at: f.now}
	switch s.Action {
	case lease.Granted:
		f.until, f.begun = f.since(s.Until), -1
		e.action, e.until = isTrusted, f.until
	case lease.Begins:
		f.begun = max(0, f.now-f.model.suspendAt(&state{trusted: f.until}))
		return
	case lease.Renews:
		e.action = "a renewal is sent"
	case lease.Reads:
		e.action = "a read is sent"
	case lease.Acknowledged:
		f.counts[Dropped]++
		e.action = fmt.Sprintf("the acknowledgement of the renewal sent at %d arrives, term %d", f.since(s.Sent), f.term(s))
	case lease.Proved:
		f.counts[Dropped]++
		e.action = fmt.Sprintf("the reply to the read sent at %d arrives, term %d", f.since(s.Sent), f.term(s))
	case lease.Confirmed:
		f.counts[Renewed]++
		f.counts[Dropped] -= 2
		f.due = f.isDue() && !f.told
		f.until, f.begun = f.since(s.Until), min(f.begun, 0) // it may not have begun
		f.told = f.isDue() && f.told                         // a reply was kept for long
		f.events = append(f.events, event{at: f.now, action: confirms})
		e.action, e.until = isTrusted, f.until
	case lease.Suspends:
		f.counts[Suspended]++
		e.action, e.due = suspends, f.due
		f.due, f.told = false, true
	case lease.Loses:
		if s.Cause == holdfast.CauseExpired {
			f.counts[Expired]++
		}
		e.action, e.early = lost, s.Cause != holdfast.CauseExpired
	case lease.Sends, lease.Judged, lease.Waited, lease.Holds: // of an entry
		return
	}
	f.events = append(f.events, e)
}

func (f *follower) term(s Said) int { return slices.Index(f.terms(), s.Term) + 1 }
