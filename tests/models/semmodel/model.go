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
	regrants bool // sessions get new leases after a loss
	anyone   bool // any attempt that looks may admit the front, and clear claims
	most     int8 // so many turns does one Txn mark; 0: all
	faults   budget

	broken rule
	expect string // what the broken rule leads to
}

// A plan is what one attempt may do.
type plan struct {
	session, key, weight int8
	after                int8 // it begins when that attempt has ended, plus 1: so it may have the same keys
	givesUp              bool
	requeues             bool // after a loss
	tries                bool // TryAcquire
	queues               bool // its session knows that others wait: it puts a turn at once
}

// A fault is what may go wrong, so often as a budget says.
type fault int8

const (
	revoke       fault = iota // L1, although it was renewed
	revokeClaims              // L2
	deletePermit              // by hand
	deleteTurn                // by hand
	deleteKey                 // the session key, by hand
	crash
	loseByClock
	// These alone cause no delay.
	remove // by an administrator
	closeSession
	loseReply
	delayCopy
	faults
)

type budget [faults]int8

// A rule is broken on purpose, to see that the search notices.
type rule string

const (
	noClaim              rule = "a permit has no claim"
	deadDoNotCount       rule = "a dead claim does not count"
	claimIsNotMarked     rule = "the claim is not marked with its turn"
	frontIgnoresDead     rule = "the front does not count dead claims"
	marksDoNotCount      rule = "a marked turn does not count"
	nothingDelays        rule = "there is no delay"
	shortDelay           rule = "LockDelay is waited for also where the session key stands"
	limitIsNotCompared   rule = "an admission does not compare the limit"
	marksByName          rule = "an admission marks turns by name"
	clearsByName         rule = "a claim is cleared by name"
	heavyIsPassed        rule = "an admission passes one that does not fit"
	limitIsNotWatched    rule = "the front does not watch the limit"
	permitsAreNotWatched rule = "the front does not watch permits"
	markIsNotWatched     rule = "a waiter does not wake by the mark of the turn ahead"
	markHolds            rule = "a waiter holds by the event of the mark of the turn ahead"
	putPassesTurns       rule = "a put does not compare that no turn is unmarked"
	putIgnoresClaim      rule = "a put does not compare the claim"
	noGate               rule = "a put does not compare the session key"
	usesKeysAgain        rule = "keys are used again while a put of them may come"
	positionIgnoresLimit rule = "by position: a limit that was changed since"
	positionIgnoresDead  rule = "by position: dead claims ahead do not count"
	foundHolds           rule = "a permit that is found holds"
	convertDropsClaim    rule = "a conversion brings no claim"
	releasesOneKey       rule = "a release leaves the claim"
	releasesByName       rule = "a release deletes by name"
	claimStays           rule = "the claim stays when its permit was deleted"
	keepsTheMark         rule = "who gives up does not give back a mark"
	closesL1First        rule = "Close revokes L1 first"
	holdsByAnOldLook     rule = "a hold by an old look"
	waitersAreMoved      rule = "an administrator puts a turn that waits"
	movedHolds           rule = "a permit that was moved holds"
	claimsAreReadFurther rule = "a front reads claims of turns that it does not read"
)

// A model searches all states of a scenario.
type model struct {
	scenario
	steps []modelsearch.Step[state]
	wrong string // with the step that is being made

	// Attempt i has a place on each pair of leases of its session. Attempts that share a place are alike.
	places         int8
	weight, pairAt [maxPlaces]int8
	room           [maxPlaces]int8
}

func (m *model) search() modelsearch.Result {
	if m.most == 0 {
		m.most = maxPlaces
	}
	return modelsearch.Model[state]{
		Start: m.start(), Steps: m.expand, Check: m.check, Finished: m.finished, Unaided: true, Max: 6_000_000,
	}.Search()
}

func (m *model) start() state {
	s := state{limit: m.limit, most: m.limit, limitAt: 1, left: m.faults}
	for i := range s.attempts {
		s.attempts[i].stage = done
	}
	for _, p := range m.attempts {
		m.places = max(m.places, 2*(p.key+1))
	}
	for i, p := range m.attempts {
		s.attempts[i].stage = idle
		s.pairs[2*p.session] = pair{granted: true, l1: true, l2: true, key: true}
		for n := range int8(2) {
			k := m.placeOf(int8(i), n)
			m.weight[k], m.pairAt[k] = p.weight, 2*p.session+n
		}
	}
	return s
}

func (m *model) placeOf(i, pair int8) int8 { return m.attempts[i].key + m.places/2*pair }

func (m *model) own(s *state, i int8) *place { return &s.places[m.placeOf(i, s.attempts[i].pair)] }

func (m *model) pairOf(s *state, i, n int8) *pair { return &s.pairs[2*m.attempts[i].session+n] }

// expand finds all steps from s.
func (m *model) expand(s *state) []modelsearch.Step[state] {
	m.steps = m.steps[:0]
	for i := range m.attempts {
		m.attemptSteps(s, int8(i))
	}
	for n := range s.pairs {
		m.sessionSteps(s, int8(n))
	}
	for k := range m.places {
		m.handSteps(s, k)
	}
	if m.anyone {
		m.othersSteps(s)
	}
	for n, x := range s.late {
		if x.kind != none {
			m.choose(s, x.by, "late copy arrives", func(t *state) {
				t.late[n] = txn{}
				m.carryOut(t, x)
			})
		}
	}
	if int(s.resized) < len(m.resizes) {
		m.choose(s, 0, "limit is changed", func(t *state) {
			t.limit, t.limitAt = m.resizes[t.resized], t.now()
			t.most = max(t.most, t.limit)
			t.resized++
		})
	}
	return m.steps
}

// must adds a step that happens by itself, sooner or later.
func (m *model) must(s *state, i int8, what string, change func(*state)) {
	m.step(s, i, what, false, change)
}

// choose adds a step that need not happen.
func (m *model) choose(s *state, i int8, what string, change func(*state)) {
	m.step(s, i, what, true, change)
}

// fault adds a step that happens as often as the budget says.
func (m *model) fault(s *state, i int8, f fault, what string, change func(*state)) {
	if s.left[f] > 0 {
		m.choose(s, i, what, func(t *state) { t.left[f]--; change(t) })
	}
}

func (m *model) step(s *state, i int8, what string, choice bool, change func(*state)) {
	t := *s
	m.wrong = ""
	change(&t)
	m.tellWatches(s, &t)
	t.reduce()
	m.steps = append(m.steps, modelsearch.Step[state]{State: t, Actor: i, What: what, Choice: choice, Wrong: m.wrong})
}

// tellWatches tells those that watch the permits and the limit of what has changed.
func (m *model) tellWatches(s, t *state) {
	changed := s.limitAt != t.limitAt && m.broken != limitIsNotWatched
	for k := range m.places {
		was, is := &s.places[k], &t.places[k]
		if was.isPermit() && !is.isPermit() || was.claim != 0 && is.claim != was.claim {
			changed = changed || m.broken != permitsAreNotWatched
		}
	}
	for i := range m.attempts {
		if a := &t.attempts[i]; changed && (a.stage == front || a.stage == delays) && s.attempts[i].stage == a.stage {
			a.news = true
		}
	}
}

func (m *model) violated(format string, args ...any) {
	if m.wrong == "" {
		m.wrong = fmt.Sprintf(format, args...)
	}
}
