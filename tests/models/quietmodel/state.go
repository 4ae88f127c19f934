package quietmodel

import (
	"cmp"
	"slices"
)

const maxMembers = 5

// A state is all of etcd, of the holder and of the waiter behind it. Times count down, or up to a limit, so a state
// holds no moment, and the search ends. It is copied by assignment and compared by ==.
type state struct {
	members [maxMembers]member // those of the scenario first, sorted: it does not matter which is which
	quorum  quorum
	lasted  int8 // of an outage

	looked  bool // the look by which the holder will hold was carried out
	age     int8 // time since then
	granted bool // the holder holds
	revoked bool // etcd has revoked its lease
	asked   bool // an administrator has put a notice into its entry
	noticed bool // which stands there
	rung    bool // and the bell was rung with it
	moved   bool // Remove has moved the entry to a lease of its own
	gone    bool // which has ended
	leaves  int8 // time until that may be
	untold  int8 // for how long a read would have told the holder
	told    bool // the holder knows; nothing more is looked at

	version  int8 // of the entry's value: how often it was put
	known    int8 // the latest whose value the holder knows
	found    bool // a poll has read the notice, and the holder is not told: only where that rule is broken
	replaced bool // a proclaim has replaced the notice

	poll     poll
	proclaim proclaim
	waiter   waiter
}

// A quorum says whether requests can be carried out, but for members that hang.
type quorum int8

const (
	neverLost quorum = iota
	lost
	regained
)

// A member is a voting member of etcd, and the holder's watch on it.
type member struct {
	health health
	watch  watch
	twice  bool // two watches are on it: only where that rule is broken

	// What was committed, as far as this member has applied it, and the events that its watch has not delivered.
	revoked, rung           bool
	sendsRevoked, sendsRung bool
}

// A health is how a member is, as the holder sees it. One that is sick stays so.
type health int8

const (
	well    health = iota
	lagging        // votes, and applies what was committed at any later time
	hung           // does nothing; a connection to it does not break by itself
	cutOff         // well, but nothing passes between it and this holder
	kinds
)

// A watch is one of the session key, on a stream of its own.
type watch int8

const (
	none watch = iota
	created
	standing // a read of the key, sent after it was created, was answered
	deaf     // has failed and counts: only where that rule is broken
)

// A poll is what the holder knows of its polls, for which a local timer ticks.
type poll struct {
	next     int8 // time until the next tick
	sent     bool // one is in flight
	read     bool // etcd has carried it out, and the reply says that all is well
	age      int8 // time since it was sent
	compares int8 // the version of the entry that it takes for known
	polled   bool // one was answered since the grant
	since    int8 // time since the latest one that was answered was sent
	rang     bool // the bell was heard, and no poll was sent since
}

type waiter struct {
	stage stage
	left  int8 // of the lock delay
	late  bool // time has passed since the end of the delay
	again bool // this is the second delay
}

type stage int8

const (
	waiting stage = iota
	delaying
	reading // at the end of the delay
	holding
)

// reduce makes states equal that differ in nothing that can still matter.
func (m *model) reduce(s *state) {
	if s.told {
		*s = state{told: true}
		return
	}
	slices.SortFunc(s.members[:m.members], func(a, b member) int { return cmp.Compare(a.number(), b.number()) })
}

// number is another one for each member that differs.
func (m member) number() (n int) {
	n = int(m.health)*int(deaf+1) + int(m.watch)
	for _, b := range [...]bool{m.twice, m.revoked, m.rung, m.sendsRevoked, m.sendsRung} {
		n *= 2
		if b {
			n++
		}
	}
	return n
}

// commits reports whether a majority of the members works together.
func (m *model) commits(s *state) bool {
	working := int8(0)
	for _, e := range s.members[:m.members] {
		if e.health != hung {
			working++
		}
	}
	return s.quorum != lost && working > m.members/2
}

// answers reports whether a linearizable read is answered at once: a majority works, and the client reaches a member
// that has applied all. Whichever it is, some copy of the request goes there.
func (m *model) answers(s *state, holder bool) bool {
	return m.commits(s) && slices.ContainsFunc(s.members[:m.members], func(e member) bool {
		return e.health == well || e.health == cutOff && !holder
	})
}

// open counts the watches that are not ended.
func (m *model) open(s *state) (n int8) {
	for _, e := range s.members[:m.members] {
		if e.watch == created || e.watch == standing {
			n++
		}
		if e.twice {
			n++
		}
	}
	return n
}

// watched reports whether enough watches stand.
func (m *model) watched(s *state) bool {
	n := int8(0)
	for _, e := range s.members[:m.members] {
		if e.watch >= standing {
			n++
		}
		if e.twice {
			n++
		}
	}
	return n >= m.needed
}
