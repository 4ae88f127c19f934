package semmodel

import (
	"cmp"
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

// A rule is broken on purpose, to see that the search notices. It is written where it applies; those that apply at two
// places have a name, so that no place is misspelled unnoticed.
type rule string

const (
	markIsNotWatched rule = "a waiter does not wake by the mark of the turn ahead"
	markHolds        rule = "a waiter holds by the event of the mark of the turn ahead"
	claimStays       rule = "the claim stays when its permit was deleted"
	noGate           rule = "a put does not compare the session key"
	holdsByAnOldLook rule = "a hold by an old look"
	movedHolds       rule = "a permit that was moved holds"
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
	m.most = cmp.Or(m.most, maxPlaces)
	return modelsearch.Model[state]{
		Start: m.start(), Steps: m.expand, Check: m.check, Finished: m.finished, Unaided: true, Max: 6_000_000,
	}.Search()
}

func (m *model) start() state {
	s := state{limit: m.limit, most: m.limit, limitAt: 1, left: m.faults}
	for _, p := range m.attempts {
		m.places = max(m.places, 2*(p.key+1))
	}
	for i, p := range m.attempts {
		s.attempts[i].stage = idle
		s.pairs[2*p.session] = granted
		for n := range int8(2) {
			k := m.placeOf(int8(i), n)
			m.weight[k], m.pairAt[k] = p.weight, 2*p.session+n
		}
	}
	return s
}

func (m *model) placeOf(i, pair int8) int8        { return m.attempts[i].key + m.places/2*pair }
func (m *model) own(s *state, i int8) *place      { return &s.places[m.placeOf(i, s.attempts[i].pair)] }
func (m *model) pairOf(s *state, i, n int8) *pair { return &s.pairs[2*m.attempts[i].session+n] }

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
			m.choose(s, x.by, "late copy arrives", func(t *state) { t.late[n] = txn{}; m.carryOut(t, x) })
		}
	}
	if int(s.resized) < len(m.resizes) {
		m.choose(s, 0, "limit is changed", func(t *state) {
			t.limit, t.limitAt, t.resized = m.resizes[t.resized], t.now(), t.resized+1
			t.most = max(t.most, t.limit)
		})
	}
	return m.steps
}

// choose adds a step that need not happen.
func (m *model) choose(s *state, i int8, what string, change func(*state)) {
	m.must(s, i, what, change)
	m.steps[len(m.steps)-1].Choice = true
}

// fault adds a step that happens as often as the budget says.
func (m *model) fault(s *state, i int8, f fault, what string, change func(*state)) {
	if s.left[f] > 0 {
		m.choose(s, i, what, func(t *state) { t.left[f]--; change(t) })
	}
}

// must adds a step that happens by itself, sooner or later.
func (m *model) must(s *state, i int8, what string, change func(*state)) {
	t := *s
	m.wrong = ""
	change(&t)
	m.tellWatches(s, &t)
	t.reduce()
	m.steps = append(m.steps, modelsearch.Step[state]{State: t, Actor: i, What: what, Wrong: m.wrong})
}

// tellWatches tells those that watch the permits and the limit of what has changed.
func (m *model) tellWatches(s, t *state) {
	changed := s.limitAt != t.limitAt && m.broken != "the front does not watch the limit"
	for k := range m.places {
		was, is := &s.places[k], &t.places[k]
		if was.isPermit() && !is.isPermit() || was.claim != 0 && is.claim != was.claim {
			changed = changed || m.broken != "the front does not watch permits"
		}
	}
	for i := range m.attempts {
		if a := &t.attempts[i]; changed && (a.stage == front || a.stage == delays) && s.attempts[i].stage == a.stage {
			a.news = true
		}
	}
}

func (m *model) violated(format string, args ...any) {
	m.wrong = cmp.Or(m.wrong, fmt.Sprintf(format, args...))
}
