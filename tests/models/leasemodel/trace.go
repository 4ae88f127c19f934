package leasemodel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/tests/models/modelsearch"
	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
)

// Traces: package modeltrace says how a run is compared with the model. A run begins when the Grant is sent, and ends
// when the loss is told. Times are in microseconds.

// An event is one of a run.
type event struct {
	at     moment
	action string // a step of the model as that tells it; or one of those below

	// What the holders know then. Check judges by the clock, so it is what they are told that may be late.
	until     moment // the lease is trusted until then
	suspended bool   // their contexts have been canceled

	// Of Follow.
	late  moment // of passes: how late a suspension and a loss may be told
	due   bool   // of suspends: it was when the latest renewal was confirmed
	early bool   // of lost: for another reason than the clock
}

const (
	passes   = "time passes"
	knows    = "the session judges its lease"
	lost     = "the loss is told"
	confirms = "the renewal counts"

	// Of Follow.
	isTrusted = "the lease is trusted"
	suspends  = "the suspension is told"
)

func (e event) String() string {
	told := fmt.Sprintf("at %v %s", float64(e.at)/1e6, e.action)
	switch e.action {
	case knows:
		told += fmt.Sprintf(": trusted until %v, suspended: %v", float64(e.until)/1e6, e.suspended)
	case isTrusted:
		told += fmt.Sprintf(" until %v", float64(e.until)/1e6)
	}
	return told
}

// isUnseen reports whether nothing tells of a step from s. Requests that are lost or canceled make room for others.
func (m *model) isUnseen(s *state, what string) bool {
	switch what {
	case confirms:
		return !m.anyEtcd
	case "a renewal is lost", "an acknowledgement is lost":
		return m.isFull(s.renewals)
	case "a read is lost", "the reply to a read is lost":
		return m.isFull(s.reads)
	}
	return strings.HasPrefix(what, "drops ") || strings.HasSuffix(what, " proposes to revoke the lease")
}

func (m *model) isFull(all [maxCopies]request) bool {
	return !slices.ContainsFunc(all[:m.copies], func(r request) bool { return r.stage == unsent })
}

// suspendAt is when the lease is suspended: half of the trusted time after it was confirmed.
func (m *model) suspendAt(s *state) moment { return s.trusted - m.trust/2 }

// isNothing reports whether an event may happen while the model stays in s.
func (m *model) isNothing(e event, s *state) bool {
	switch {
	case e.action == knows:
		return e.until == s.trusted && e.suspended == (s.now >= m.suspendAt(s))
	case e.action == isTrusted:
		return e.until == s.trusted
	case e.action == suspends:
		return e.due || s.now >= m.suspendAt(s)
	case m.anyEtcd:
		return false
	case strings.HasSuffix(e.action, " is elected"), strings.HasSuffix(e.action, " finds that it leads"):
		return false
	case strings.Contains(e.action, " arrives, "):
		return true // it was canceled, or is a read of a watch
	case strings.Contains(e.action, " renewal "):
		return !isUnderWay(s.renewals, e.action)
	default:
		return strings.Contains(e.action, " read ") && !isUnderWay(s.reads, e.action)
	}
}

// isUnderWay reports whether one of the requests is the one that an action is about.
func isUnderWay(all [maxCopies]request, action string) bool {
	for _, r := range all {
		if r.stage != unsent && strings.Contains(action+" ", fmt.Sprintf(" sent at %d ", r.sent)) {
			return true
		}
	}
	return false
}

// happens has time pass, or the lease be lost.
func (m *model) happens(e event, s *state) bool {
	switch {
	case e.action == passes && m.mayPass(e, s):
		s.now = e.at
	case e.action == lost && (e.early || s.gone || s.now >= s.trusted):
		s.lost = true
	default:
		return false
	}
	return true
}

// mayPass reports whether time may pass: no holder is told late of a suspension or of a loss, and in virtual time the
// session judges its replies at once.
func (m *model) mayPass(e event, s *state) bool {
	told := e.at-e.late <= s.trusted && (e.suspended || e.at-e.late <= m.suspendAt(s))
	return told && (m.anyEtcd || !s.ack.held || !s.proof.held)
}

// refused returns what is wrong with a run: see modeltrace.
func (m *model) refused(events []event) (wrong string, most int) {
	var steps []modelsearch.Step[state]
	return modeltrace.Model[state, event]{
		Start: []state{m.start()},
		Steps: func(s *state) []modelsearch.Step[state] {
			steps = steps[:0]
			for _, st := range m.expand(s) {
				steps = append(steps, modelsearch.Step[state]{State: st.state, What: st.what})
			}
			return steps
		},
		Unseen:  func(s *state, st *modelsearch.Step[state]) bool { return m.isUnseen(s, st.What) },
		Is:      func(e event, _ *state, st *modelsearch.Step[state]) bool { return st.What == e.action },
		Nothing: m.isNothing, Happens: m.happens, Reduce: func(*state) {}, // steps are reduced
	}.Refused(events)
}
