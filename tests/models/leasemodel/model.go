package leasemodel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Functions that each step passes through are marked go:norace, as in modelsearch: one goroutine searches.

const (
	maxTerms  = 3
	maxCopies = 4
)

// A moment is a time since the Grant was sent. In a search it counts steps; of a run it has microseconds.
type moment int32

// A state is all of etcd, of the session and of the network between them. It is copied by assignment and compared
// by ==.
type state struct {
	now, trusted moment               // trusted is trusted-until
	expiry       [maxTerms + 1]moment // by the memory of each term's leader; 0 until it has been promoted
	term         int8                 // of the leader that leads
	proposed     bool                 // a revocation stands in the log of the leader that leads
	gone         bool                 // the revocation was committed
	lost         bool                 // by another cause than the clock, as a run tells

	renewals, reads [maxCopies]request
	put             put // of the session key
	ack, proof      reply
}

// A put is the request that puts the session key.
type put struct {
	request      // term is that of its entry in the log
	inLog   bool // of the leader that leads, before a revocation
}

// A request is one copy of a renewal or of a read.
type request struct {
	sent  moment
	stage stage
	term  int8 // of the leader that has carried it out
}

type stage int8

const (
	unsent stage = iota
	sent
	done
	logged // a put: it stands in the log of a leader
	heard  // a put, by its session
)

// A reply is what the session keeps of a request that was answered.
type reply struct {
	sent moment
	held bool
	term int8 // in the header
}

// A rule is broken on purpose, to see whether the search notices.
type rule string

const (
	// Of the session.
	termsAreNotCompared   rule = "terms are not compared"
	olderAckCounts        rule = "an acknowledgement of an earlier term than the proof's counts"
	olderProofCounts      rule = "a proof of an earlier term than the acknowledgement's counts"
	countsFromLaterSend   rule = "a renewal counts from the later of the two sends"
	countsFromAck         rule = "a renewal counts from its own send, although the proof was sent before"
	countsFromProof       rule = "a renewal counts from the send of the proof, although it was sent before"
	countsFromOldProof    rule = "a proof of an earlier term counts, and the renewal counts from its own send"
	countsFromLatestCopy  rule = "a reply counts from the send of the latest copy, whichever was answered"
	lossIsNotFinal        rule = "a renewal that is confirmed after trusted-until counts"
	ackIsEnough           rule = "a renewal counts without a proof"
	ackCountsFromItsReply rule = "a renewal counts from when its reply arrived"

	// Of etcd.
	serializableRead   rule = "the proof is a serializable read"
	readWithoutQuorum  rule = "a deposed leader answers the read, at its own term"
	shortPromotion     rule = "a new leader gives the lease less than its TTL"
	noPromotion        rule = "a new leader goes on with the expiry that its predecessor knew"
	ackHeaderIsLater   rule = "the header of a forwarded renewal is filled after it was acknowledged"
	proofHeaderIsOlder rule = "the header of a read has an earlier term than confirmed it, as after a snapshot"
	expiredIsRenewed   rule = "a leader renews a lease that has expired by its own clock"
	putNeedsNoLease    rule = "the session key is put although its lease is gone"
	putHeaderIsOlder   rule = "the header of a put has an earlier term than its entry in the log"
)

// A scenario says how far the search goes.
type scenario struct {
	horizon moment // the last one that is looked at
	terms   int8   // of Raft
	copies  int    // of one request, side by side
	ttl     moment // of the lease
	trust   moment // how long a confirmed renewal is trusted

	// The put of the session key proves the renewal beside it, and there are no reads.
	put bool

	// Etcd carries out each request, in any term: of real clusters no more is known. See Follow.
	anyEtcd bool
}

// A model searches all states of a scenario.
type model struct {
	scenario
	broken rule
	steps  []step // from the state that is looked at
}

type step struct {
	state state
	what  string
}

// step copies s for a step; the caller makes the change, before the next step.
//
//go:norace
func (m *model) step(s *state, format string, args ...any) *state {
	what := format
	if len(args) > 0 {
		what = fmt.Sprintf(format, args...)
	}
	m.steps = append(m.steps, step{*s, what})
	return &m.steps[len(m.steps)-1].state
}

// start returns the state in which the lease was granted at the moment the request was sent: the shortest it can live.
func (m *model) start() state {
	s := state{term: 1, trusted: m.trust}
	s.expiry[1] = m.ttl
	return s
}

// search visits all states, breadth first, so that a counterexample is as short as can be. It returns the latest
// trusted-until of all of them, and the steps to the first one in which the session trusts a lease that is gone, "" if
// there is none.
//
//go:norace
func (m *model) search() (states int, latest moment, wrong string) {
	start := m.start()
	found := []state{start}
	number := map[state]int32{start: 0}
	parents := []int32{-1}
	for n := 0; n < len(found); n++ {
		s := found[n]
		latest = max(latest, s.trusted)
		if s.gone && s.now < s.trusted {
			return len(found), latest, m.trace(found, parents, int32(n))
		}
		for _, next := range m.expand(&s) {
			if _, seen := number[next.state]; !seen {
				number[next.state] = int32(len(found))
				found = append(found, next.state)
				parents = append(parents, int32(n))
			}
		}
	}
	return len(found), latest, ""
}

// trace tells the steps from the start to state n.
func (m *model) trace(found []state, parents []int32, n int32) string {
	var told []string
	for ; n > 0; n = parents[n] {
		from := found[parents[n]]
		for _, step := range m.expand(&from) {
			if step.state == found[n] {
				told = append(told, fmt.Sprintf("at %d %s", from.now, step.what))
				break
			}
		}
	}
	slices.Reverse(told)
	return strings.Join(told, "\n\t")
}

// expand finds all steps from s.
//
//go:norace
func (m *model) expand(s *state) []step {
	m.steps = m.steps[:0]
	if s.lost || s.now >= s.trusted && m.broken != lossIsNotFinal {
		return nil // which is final
	}
	if s.now < m.horizon {
		m.step(s, "time passes").now++
	}
	if !m.anyEtcd {
		m.etcdSteps(s)
	}
	m.judge(s)
	for i := range m.copies {
		m.renewalSteps(s, i)
		if !m.put {
			m.readSteps(s, i)
		}
	}
	if m.put {
		m.putSteps(s)
	}
	for i := range m.steps {
		m.reduce(&m.steps[i].state)
	}
	return m.steps
}

// reduce makes states equal that differ in nothing that can still matter: the order of copies, those that were sent
// before the latest renewal that counts, and what a deposed leader knows of a lease that it does not renew any more.
//
//go:norace
func (m *model) reduce(s *state) {
	if m.broken == "" && !m.anyEtcd {
		for i := range m.copies {
			m.forget(s, &s.renewals[i])
			m.forget(s, &s.reads[i])
		}
	}
	slices.SortFunc(s.renewals[:m.copies], compare)
	slices.SortFunc(s.reads[:m.copies], compare)
	for term := int8(1); term < s.term; term++ {
		if !m.renews(s, term) && m.broken != noPromotion {
			s.expiry[term] = 0
		}
	}
}

// forget makes a request unsent whose reply is of no use any more.
//
//go:norace
func (m *model) forget(s *state, r *request) {
	if r.sent+m.trust <= s.trusted {
		*r = request{}
	}
}

//go:norace
func compare(a, b request) int {
	return cmp.Or(cmp.Compare(a.stage, b.stage), cmp.Compare(a.sent, b.sent), cmp.Compare(a.term, b.term))
}
