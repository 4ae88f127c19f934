package queuemodel

const (
	maxSessions = 3
	maxLeases   = 2 * maxSessions // pairs: session n has 2n and, after a loss, 2n+1
	maxAttempts = 4
	maxKeys     = 14
	maxCopies   = 2 * maxAttempts
)

// A revision of etcd's store; 0 means none. The search renumbers the revisions of each state, so these are only in
// order, and small.
type revision = int8

// A state is all of etcd, of the sessions and of the network between them. It holds only small numbers, without
// pointers, so it is copied by assignment and compared by ==.
type state struct {
	keys     [maxKeys]key
	leases   [maxLeases]twin
	attempts [maxAttempts]attempt
	seen     [maxSessions][maxKeys]sight // what each session remembers of dead claims
	copies   [maxCopies]requestCopy

	left   budget
	faulty bool // something has gone wrong after which a delay may be needed
}

// A budget says how often each fault may still happen.
type budget struct {
	revokes     int8 // etcd revokes L1 although it was renewed
	revokesL2   int8 // the same of L2
	clocks      int8 // a session gives up a lease that etcd keeps
	crashes     int8 // a process dies
	deletes     int8 // an entry is deleted by hand
	keysDeleted int8 // a session key is deleted by hand
	removals    int8 // an administrator moves an entry to a lease of its own
	notices     int8 // an administrator asks the owner of an entry to let go
	closes      int8 // a session is closed
	lost        int8 // a reply is lost
	late        int8 // a copy of a request stays in the network
}

// A key is an entry E and its claim C: which attempt may put it, in which queue, is in the model.
type key struct {
	e, c     revision // create revisions; 0: does not stand
	by       int8     // the attempt that put them last
	written  bool     // E's mod revision is not the one that its session wrote
	kept     bool     // E stands on a lease of its own
	believed bool     // its owner held by it when it was moved there
}

// A twin is a pair of leases of a session: L1 has the session key S and the entries, L2 the claims.
type twin struct {
	granted bool
	l1, l2  bool // by etcd's record
	s       bool // S stands
	told    bool // the session knows that L1 is lost, or has given it up: no hold under it is believed
	dead    bool // its process has died
	closing bool // told because of Close
}

// A sight is what a session remembers of a dead claim: a later call counts from then.
type sight struct {
	c         revision // of the claim
	without   bool     // a reply showed it dead while S was gone
	acquitted bool     // its attempt never held, and never will
}

// A stage of an attempt.
type stage int8

const (
	idle    stage = iota
	inLine        // another goroutine of its session is the head of its line
	sent          // its put was sent, and what became of it is not known
	waiting       // for the deletion of an entry ahead
	delayed       // only dead claims are ahead
	ready         // a reply has shown that it may hold, and is not read yet
	holding       // believes that it holds
	leaving       // removes its entries
	swept         // as leaving; S was put again, so no copy of its put can do anything
	done
)

// An attempt is a call that puts entries, by one Txn.
type attempt struct {
	stage   stage
	again   bool     // it queues for the second time
	pair    int8     // of leases: 0 or 1 of its session
	r       revision // create revision of its keys; 0: not known
	open    bool     // a copy of its put was not answered
	down    bool     // it goes on as a reader: its first key is deleted
	waited  bool     // of traces: it has said that its delays are over
	watch   int8     // the key of the nearest entry ahead,
	watched revision // and the create revision
	delayed bool     // it has waited for a dead claim; for check
	dead    claims   // ahead of it, as it knows
}

// claims are claims by their keys and create revisions.
type claims [maxKeys]revision

// A requestCopy is a Txn that etcd may carry out at any later moment. Its reply is not read.
type requestCopy struct {
	kind  kind
	by    int8 // attempt
	pair  int8
	r     revision // that it compares its attempt's entries with; of a put with after: the entries of that
	after int8     // of a put: of the attempt that it replaces, plus 1
	dead  claims   // of a clear
}

type kind int8

const (
	none kind = iota
	latePut
	lateRelease
	lateClear
	lateMove
	lateDowngrade
)

// reduce makes states equal that differ in nothing that can still matter. It forgets what no step reads, and numbers
// the revisions again.
//
//go:norace
func (m *model) reduce(s *state) {
	for k := range s.keys {
		if q := &s.keys[k]; q.e == 0 && q.c == 0 {
			*q = key{}
		} else if q.e == 0 {
			q.written, q.kept, q.believed = false, false, false
		}
	}
	for n := range s.seen {
		for k := range s.seen[n] {
			if seen := &s.seen[n][k]; seen.c != 0 && s.keys[k].c == 0 && !m.rules.sightByKey {
				*seen = sight{}
			}
		}
	}
	for i := range s.attempts {
		a := &s.attempts[i]
		if a.stage == done {
			*a = attempt{stage: done, delayed: a.delayed}
		}
		if a.stage != delayed {
			a.dead = claims{}
		}
		if a.stage != waiting {
			a.watch, a.watched = 0, 0
		}
	}
	m.renumber(s)
}

// renumber gives the revisions of a state the smallest numbers that are in the same order.
//
//go:norace
func (m *model) renumber(s *state) {
	m.findRevisions(s)
	var number [128]revision
	for _, r := range m.refs {
		number[*r] = 1
	}
	last := revision(0)
	for r := range number {
		if number[r] != 0 {
			last++
			number[r] = last
		}
	}
	for _, r := range m.refs {
		*r = number[*r]
	}
}

// findRevisions makes refs point to all revisions of a state that are not 0.
//
//go:norace
func (m *model) findRevisions(s *state) {
	m.refs = m.refs[:0]
	keys := 2 * m.n
	for k := range keys {
		m.ref(&s.keys[k].e)
		m.ref(&s.keys[k].c)
	}
	for i := range m.attempts {
		a := &s.attempts[i]
		m.ref(&a.r)
		m.ref(&a.watched)
		for k := range keys {
			m.ref(&a.dead[k])
		}
	}
	for n := range s.seen {
		for k := range keys {
			m.ref(&s.seen[n][k].c)
		}
	}
	for n := range s.copies {
		if c := &s.copies[n]; c.kind != none {
			m.ref(&c.r)
			for k := range keys {
				m.ref(&c.dead[k])
			}
		}
	}
}

//go:norace
func (m *model) ref(r *revision) {
	if *r != 0 {
		m.refs = append(m.refs, r)
	}
}

// next returns a revision that is younger than all.
//
//go:norace
func (m *model) next(s *state) (youngest revision) {
	m.findRevisions(s)
	for _, r := range m.refs {
		youngest = max(youngest, *r)
	}
	return youngest + 1
}
