package semmodel

import (
	"fmt"

	"github.com/holdfast-go/holdfast/tests/models/modelsearch"
)

// A scenario is what is searched: the attempts, and what may go wrong.
type scenario struct {
	name     string
	limit    int8
	resizes  []int8 // one after another, at any time
	attempts []plan

	revokes   int8 // leases that etcd may revoke although they were renewed
	crashes   int8 // processes that may end without a word
	regrants  bool // sessions get a new lease after a loss
	unknown   bool // a watch may not tell when the entry ahead went
	compacted bool // what a read asks for may be compacted
	lossy     bool // the reply to a put or to an admission may be lost
	latePuts  bool // a copy of a put may arrive when its attempt is over
	clean     bool // a delay without a fault is a violation

	broken rule
	expect string // what the broken rule leads to
}

// A plan is what one attempt may do.
type plan struct {
	weight  int8
	givesUp bool
}

// A rule is broken on purpose, to see that the search notices.
type rule string

const (
	marksNothing           rule = "an attempt that holds after a wait puts no mark"
	limitOfNowExcludes     rule = "the limit of now decides whether an entry ahead waits that was put before it"
	oneTooMany             rule = "one permit more is given"
	waitersArePassed       rule = "only the permits that are held are counted, not those waited for"
	limitIsNotCompared     rule = "an admission does not compare the limit"
	limitIsNotWatched      rule = "the first waiter does not watch the limit"
	nothingDelays          rule = "a revoked permit ahead causes no delay"
	onlyTheLastIsJudged    rule = "only the permit that was the last to go is judged"
	markSaysNow            rule = "a mark says that all is judged up to now"
	markSpeaksOfAll        rule = "an attempt whose entry ahead went goes on from the mark of the one ahead of that"
	markBeforeDelay        rule = "a mark is put before the lock delay is over"
	leaveSaysHeard         rule = "an attempt that leaves says that all it has heard of is waited for"
	delayIsWaitedFor       rule = "a revoked permit counts as waited for when the delay begins"
	leavesWithoutMark      rule = "the first waiter leaves without a mark"
	goneWithoutMarkIsClean rule = "an entry ahead that went without a mark causes no delay"
	firstByPosition        rule = "an attempt becomes the first waiter by its position, without a mark"
	markIsReadNow          rule = "the entries ahead are read now, not at the revision that the mark says"
	compactedIsClean       rule = "a history that is compacted causes no delay"
	requeuedWithoutDelay   rule = "an attempt that queues again after a loss holds without a delay"
	placedByLimitOfNow     rule = "an attempt whose put had no reply holds without a mark if it fits into the limit of now"
	placedByWhatStandsNow  rule = "an attempt whose place is compacted holds without a mark if there is room now"
	highIsThatOfTheLast    rule = "the highest limit is that of the last change and the one before, whatever stands"
	tooHeavyWaits          rule = "an attempt whose weight is above the limit waits on"
)

// A model searches all states of a scenario.
type model struct {
	scenario
	steps  []modelsearch.Step[state]
	wrong  string // with the step that is being made
	traced bool   // the states are those of a run: see trace.go
	late   int    // states in which one that has waited holds beside one whose lease was revoked before it queued
}

func (m *model) search() modelsearch.Result {
	return modelsearch.Model[state]{
		Start: m.start(), Steps: m.expand, Check: m.check, Quiet: m.quiet, Finished: finished, Max: 6_000_000,
	}.Search()
}

func (m *model) start() state {
	s := state{now: 1, limit: m.limit, high: m.limit, most: m.limit, limitAt: 1}
	for i := range s.attempts {
		if i >= len(m.attempts) {
			s.attempts[i].stage = done
		} else {
			s.leases[leaseOf(int8(i), 0)] = lease{granted: true, alive: true}
		}
	}
	m.reduce(&s)
	return s
}

// expand finds all steps from s.
func (m *model) expand(s *state) []modelsearch.Step[state] {
	m.steps = m.steps[:0]
	for i := range m.attempts {
		m.attemptSteps(s, int8(i))
		for try := range int8(maxTries) {
			m.leaseSteps(s, int8(i), try)
		}
	}
	if int(s.resized) < len(m.resizes) {
		m.choose(s, 0, "limit is changed", func(t *state) {
			t.now++
			m.resize(t, m.resizes[t.resized])
			t.resized++
		})
	}
	return m.steps
}

// resize changes the limit. The highest limit at which a permit may have been put that stands is kept beside it. It
// comes down once all that stand were put at the limit before: since that was changed last.
func (m *model) resize(s *state, to int8) {
	before, since := s.limit, s.limitAt
	s.limit, s.limitAt = to, s.now
	s.high, s.most = max(s.high, to), max(s.most, to)
	if m.broken == highIsThatOfTheLast || !s.olderStands(since) {
		s.high = max(before, to)
	}
}

// must adds a step that happens by itself, sooner or later.
func (m *model) must(s *state, i int8, what string, change func(*state)) {
	m.step(s, i, what, false, change)
}

// choose adds a step that need not happen.
func (m *model) choose(s *state, i int8, what string, change func(*state)) {
	m.step(s, i, what, true, change)
}

func (m *model) step(s *state, i int8, what string, choice bool, change func(*state)) {
	t := *s
	m.wrong = ""
	change(&t)
	m.reduce(&t)
	m.steps = append(m.steps, modelsearch.Step[state]{
		State: t, Actor: i, What: what, Choice: choice, Wrong: m.wrong,
	})
}

func (m *model) violated(format string, args ...any) {
	if m.wrong == "" {
		m.wrong = fmt.Sprintf(format, args...)
	}
}

// toldInItsCall: the call has begun, though the attempt has sent nothing yet, and has not returned, though it holds.
const toldInItsCall = "is told that its lease is lost, while it is called"

// leaseSteps are what happens to a lease.
func (m *model) leaseSteps(s *state, i, try int8) {
	n := leaseOf(i, try)
	l := s.leases[n]
	if !l.granted {
		return
	}
	if l.alive && s.revoked < m.revokes {
		m.choose(s, i, "has its lease revoked by etcd, though it was renewed", func(t *state) {
			t.revoke(n)
			t.revoked++
			if l.told {
				return
			}
			if a := &t.attempts[i]; a.stage == done || a.try != try {
				t.leases[n].told = true
			}
		})
	}
	if !l.alive && !l.told {
		m.must(s, i, "is told that its lease is lost", func(t *state) { m.tell(t, i, try, false) })
		if a := &s.attempts[i]; m.regrants && (a.stage == idle || a.stage == holding) {
			m.must(s, i, toldInItsCall, func(t *state) { m.tell(t, i, try, true) })
		}
	}
	if l.alive && l.told {
		m.must(s, i, "has its lease expire", func(t *state) { t.revoke(n) })
	}
	a := s.attempts[i]
	running := l.alive && !l.told && a.try == try && a.stage != done && a.stage != idle
	if running && s.crashed < m.crashes {
		m.choose(s, i, "crashes", func(t *state) {
			t.crashed++
			t.leases[n].told = true // it does nothing any more
			t.attempts[i] = attempt{stage: done, try: try}
		})
	}
}

// revoke ends a lease: its entry and its session key go at one revision.
func (s *state) revoke(n int8) {
	s.now++
	s.leases[n].alive = false
	for i := range s.entryCount {
		if e := &s.entries[i]; e.deleted == 0 && e.lease == n {
			e.deleted, e.revoked = s.now, true
		}
	}
}

// tell ends what depends on a lease. An attempt that waits queues again if its session gets another lease, and with
// called also one that does not.
func (m *model) tell(s *state, i, try int8, called bool) {
	n := leaseOf(i, try)
	s.leases[n].told = true
	for k := range s.attempts {
		s.attempts[k].delay.until &^= 1 << n
		s.attempts[k].newcomerTo &^= 1 << n
	}
	a := &s.attempts[i]
	if a.try != try || a.stage == done {
		return
	}
	requeued := called || a.stage == unplaced || a.waits()
	if m.regrants && try+1 < maxTries && (requeued || a.stage == idle) {
		s.leases[leaseOf(i, try+1)] = lease{granted: true, alive: true}
		*a = attempt{try: try + 1, requeued: requeued, queued: a.queued, newcomerTo: a.newcomerTo}
		return
	}
	*a = attempt{stage: done, try: try}
}
