package quietmodel

import "github.com/holdfast-go/holdfast/tests/models/modelsearch"

// Times, in quarters of the lock delay.
const (
	lockDelay = 4
	replies   = 1 // a request that can be answered is answered within so long
	interval  = 2 // between two polls: lease.PollInterval; and the age of a hold when the first one is sent
	slowPoll  = 8 // between two polls of a lease that is watched: twice the lock delay is as good as five times
)

// A scenario is what is searched: the members, the rules, and what may go wrong.
type scenario struct {
	name    string
	members int8
	slots   int8 // watches that are open at once
	needed  int8 // of them, so that not each tick polls

	sick      int8     // members that may become
	sickness  []health // one of these
	steady    bool     // watches do not fail
	outage    int8     // the quorum may be lost once, for so long or longer; 0: never
	failsFast bool     // a poll may fail at once where it is not answered

	revokes   bool // etcd may revoke the lease although it was renewed
	kicks     kick // an administrator may put a notice
	proclaims bool // a leader may put another value into its entry
	removedIn int8 // and move the entry to a lease of its own, which lasts so long; 0: not

	toldIn int8 // of what etcd would answer, the holder knows after so long; 0: within a request

	broken rule
	expect string // what the broken rule leads to
}

// A kick says when an administrator puts a notice, and whether it rings the bell.
type kick int8

const (
	never kick = iota
	silent
	ringing
	ringingWatched // only while the lease is watched
)

// A rule is broken on purpose, to see that the search notices.
type rule string

const (
	neverPolls           rule = "a holder never polls, whatever is watched"
	oneMemberForTwo      rule = "two watches may be on one member"
	movesUnnoticed       rule = "a watch moves to another member unnoticed, as those of etcd's client do"
	countsBeforeRead     rule = "a watch counts before the read after its creation"
	countsAfterFailure   rule = "a watch that failed counts until it is created again"
	fewerThanAMajority   rule = "what is needed is a majority of the endpoints, and there are more members"
	neverPollsAgain      rule = "while the lease is watched, no tick polls"
	newHoldIsNotPolled   rule = "a new hold is not polled while the lease is watched"
	bellInFlightIsLost   rule = "a bell that is heard while a poll is in flight is forgotten"
	bellAtCreationIsLost rule = "the read after a watch's creation does not look whether the bell has rung"
	bellWaits            rule = "a bell is looked after at the next tick"
	removedTooSoon       rule = "a removed entry stands no longer than it does for a holder that polls at each tick"
	ageSinceGrant        rule = "a hold is as old as its grant, and not as the look by which it holds"
	oldLookSuffices      rule = "a waiter holds by a look so old that its entry may go before the first poll is answered"
	comparesEntryOnly    rule = "a proclaim compares that the entry stands, and not its value"
	refusedIsResent      rule = "a proclaim that is refused is sent again, whatever value stands"
	knownBeforeTold      rule = "the value with a notice counts as known before the holder is told"
	holdsWithoutRead     rule = "a waiter holds at the end of its delay, without a read"
	lateReadSuffices     rule = "a waiter holds by a read at the end of its delay, however late the reply comes"
)

// A model searches all states of a scenario.
type model struct {
	scenario
	steps []modelsearch.Step[state]
}

func (m *model) search() modelsearch.Result {
	return modelsearch.Model[state]{
		Steps: m.expand, Check: m.check, Finished: func(s *state) bool { return s.told }, Max: 4_000_000,
	}.Search()
}

// check returns what is wrong with a state, "" if nothing is.
func (m *model) check(s *state) string {
	switch {
	case s.replaced:
		return "kept: a proclaim has replaced the notice of an administrator"
	case s.told || !s.granted:
		return ""
	case s.waiter.stage == holding && s.gone:
		return "removed: a waiter holds, and the holder does not know that its entry was removed"
	case s.waiter.stage == holding:
		return "early: a waiter holds, and the holder does not know that its lease was revoked"
	case s.untold > m.toldIn:
		return "late: the holder could have known for long"
	}
	return ""
}

// step adds a step from s.
func (m *model) step(s *state, what string, change func(*state)) {
	t := *s
	change(&t)
	m.reduce(&t)
	m.steps = append(m.steps, modelsearch.Step[state]{State: t, What: what})
}

// expand finds all steps from s.
func (m *model) expand(s *state) []modelsearch.Step[state] {
	m.steps = m.steps[:0]
	if s.told {
		return nil
	}
	m.etcdSteps(s)
	for i := range m.members {
		m.memberSteps(s, i)
		m.watchSteps(s, i)
	}
	m.holderSteps(s)
	m.proclaimSteps(s)
	m.waiterSteps(s)
	if !m.mustHappen(s) {
		m.step(s, "time passes", m.pass)
	}
	return m.steps
}

// mustHappen reports whether something happens before time passes.
func (m *model) mustHappen(s *state) bool {
	c := &s.poll
	switch {
	case !s.granted && s.looked && s.age == replies:
		return true
	case s.granted && m.isDue(s), c.read && c.age >= replies, c.sent && !c.read && c.age >= replies && m.answers(s, true):
		return true
	}
	for _, e := range s.members[:m.members] {
		behind := s.revoked && !e.revoked || s.rung && !e.rung
		if e.health == well && (e.sendsRevoked || e.sendsRung || behind && m.commits(s)) {
			return true
		}
	}
	return false
}

// pass moves all times by one.
func (m *model) pass(s *state) {
	if s.quorum == lost {
		s.lasted = min(s.lasted+1, m.outage)
	}
	s.leaves = max(0, s.leaves-1)
	w := &s.waiter
	w.late = w.late || w.stage == reading || w.stage == delaying && w.left == 0
	w.left = max(0, w.left-1)
	if !s.granted {
		if s.looked {
			s.age++
		}
		return
	}
	if (s.revoked || s.noticed) && m.answers(s, true) {
		s.untold = min(s.untold+1, m.toldIn+1)
	}
	c := &s.poll
	c.next = max(0, c.next-1)
	c.since = min(c.since+1, slowPoll)
	if c.sent {
		c.age = min(c.age+1, slowPoll)
	}
}
