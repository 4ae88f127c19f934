package semmodel

const (
	maxAttempts = 5
	maxTries    = 2  // entries that one attempt may have, one after another
	maxEntries  = 24 // in recorded runs: a search has eight at most
)

// A revision of etcd's store; 0 means none. The search renumbers the revisions of each state, so these are only in
// order, and small.
type revision = int8

// A leaseSet has bit l for lease l.
type leaseSet uint16

func (s leaseSet) has(l int8) bool { return s>>l&1 == 1 }

// A state is all of etcd and of the sessions. It holds only small numbers, so it is copied by assignment and compared
// by ==.
type state struct {
	now      revision
	entries  [maxEntries]entry // in order of creation; those deleted too, as long as a read of the past can see them
	attempts [maxAttempts]attempt
	leases   [maxTries * maxAttempts]lease // attempt i has lease 2i and, after a loss, 2i+1

	limit   int8 // how many permits there are
	high    int8 // the highest limit at which a permit may have been put that stands
	limitAt revision
	most    int8 // the highest limit that there ever was; for check, the attempts do not know it

	entryCount, revoked, crashed, resized int8
}

// An entry is a permit's key in etcd.
type entry struct {
	attempt, lease   int8
	created, deleted revision // deleted is 0 while it stands
	revoked          bool     // it was deleted together with the session key of its lease
	mark             revision // see attempt.base; 0: it has no mark
	marked           revision // when the mark was put
}

// A lease is a session's.
type lease struct {
	granted bool
	alive   bool // by etcd's record
	told    bool // its session knows that it is lost; no permit on it is believed
}

// A stage of an attempt.
type stage int8

const (
	idle     stage = iota
	unplaced       // its entry stands; the put had no reply
	far            // its entry stands; it watches the entry ahead
	first          // its entry stands; it watches all permits ahead and the limit
	delayed        // its entry stands, and there was room when it was put; it waits for the lock delay only
	leaving        // gives up and removes its entry
	holding        // believes that it holds
	done
)

// An attempt is a call of Acquire in a session of its own.
type attempt struct {
	stage   stage
	try     int8
	created revision // of its entry
	ahead   revision // create revision of the entry ahead, while far

	// base: each revoked permit ahead that went before this revision has been waited for. 0 if that is not known. A mark
	// passes it on: the attempt behind goes on from there.
	base   revision
	heard  revision // the first waiter: it knows of each deletion up to here
	read   revision // at which it has read what stood ahead; what was put and had gone between that and looked it misses
	looked revision
	due    revision // each revoked permit ahead that went before this is waited for when the delay is over
	delay  delay

	limit   int8 // as it has heard
	limitAt revision

	requeued bool // its session has lost a lease since it began
	late     bool // a copy of its put has arrived when it was over

	// For check; the attempt does not know it.
	queued     bool
	waited     bool     // it did not hold by the put of its entry
	newcomerTo leaseSet // leases that were revoked, and not told, when it first queued
}

// waits reports whether an attempt knows its place and does not hold yet.
func (a *attempt) waits() bool { return a.stage == far || a.stage == first || a.stage == delayed }

// A delay is a lock delay that runs. The model has no clock. It is over when each session whose lease was revoked
// before it began has been told.
type delay struct {
	running bool
	until   leaseSet
}

func (s *state) standing(created revision) *entry {
	for i := range s.entryCount {
		if e := &s.entries[i]; e.created == created && created != 0 && e.deleted == 0 {
			return e
		}
	}
	return nil
}

// olderStands reports whether an entry stands that was created at a revision or before.
func (s *state) olderStands(at revision) bool {
	for i := range s.entryCount {
		if e := &s.entries[i]; e.deleted == 0 && e.created <= at {
			return true
		}
	}
	return false
}

func (e *entry) stoodAt(at revision) bool {
	return e.created <= at && (e.deleted == 0 || e.deleted > at)
}

// untold returns the leases that are revoked while their sessions do not know it.
func (s *state) untold() (set leaseSet) {
	for i, l := range s.leases {
		if l.granted && !l.alive && !l.told {
			set |= 1 << i
		}
	}
	return set
}

func leaseOf(i, try int8) int8 { return maxTries*i + try }

// reduce makes states equal that differ in nothing that can still matter: it forgets deleted entries that no read can
// see, and numbers the revisions again. In recorded runs the events have these numbers, and marks are compared.
func (m *model) reduce(s *state) {
	if m.traced {
		return
	}
	kept := int8(0)
	for i := range s.entryCount {
		if e := s.entries[i]; e.deleted == 0 || s.canBeRead(&e) {
			s.entries[kept] = e
			kept++
		}
	}
	clear(s.entries[kept:s.entryCount])
	s.entryCount = kept

	var used, number [128]revision
	s.eachRevision(func(r *revision) { used[*r] = 1 })
	last := revision(0)
	for r := 1; r <= int(s.now); r++ {
		if used[r] != 0 {
			last++
			number[r] = last
		}
	}
	s.eachRevision(func(r *revision) { *r = number[*r] })
	s.now = last
}

// canBeRead reports whether an attempt behind a deleted entry may read of it.
func (s *state) canBeRead(e *entry) bool {
	for i := range s.attempts {
		if a := &s.attempts[i]; (a.stage == unplaced || a.stage == far || a.stage == first) && a.created > e.created {
			return true
		}
	}
	return false
}

func (s *state) eachRevision(f func(*revision)) {
	for i := range s.entryCount {
		e := &s.entries[i]
		f(&e.created)
		f(&e.deleted)
		f(&e.mark)
		f(&e.marked)
	}
	for i := range s.attempts {
		a := &s.attempts[i]
		f(&a.created)
		f(&a.ahead)
		f(&a.base)
		f(&a.heard)
		f(&a.read)
		f(&a.looked)
		f(&a.due)
		f(&a.limitAt)
	}
	f(&s.limitAt)
}
