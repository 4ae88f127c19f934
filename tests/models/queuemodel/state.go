package queuemodel

const (
	maxSessions = 4
	maxAttempts = 4
	maxMembers  = 3 // entries that one Txn puts
	maxTries    = 3 // sets of entries that one attempt may have, one after another, each under its own keys
	maxEntries  = 14
	maxCopies   = 6
)

// A revision of etcd's store; 0 means none. The search renumbers the revisions
// of each state, so these are only in order, and small.
type revision = int8

// A leaseSet has bit l for lease l.
type leaseSet uint8

func (s leaseSet) has(l int8) bool { return s>>l&1 == 1 }

// A state is all of etcd, of the sessions and of the network between them. It
// holds only small numbers, without pointers, so it is copied by assignment and
// compared by ==.
type state struct {
	now      revision
	entries  [maxEntries]entry // in order of creation; those deleted too, as long as a read of the past can see them
	copies   [maxCopies]enqueueCopy
	attempts [maxAttempts]attempt
	sessions [maxSessions]session
	leases   [2 * maxSessions]lease // session i has leases 2i and, after a loss, 2i+1

	entryCount, copyCount                         int8
	revoked, keysDeleted, latePuts, givenUpLeases int8 // faults so far
	freedEarly                                    bool // a session deleted an entry that was to be kept
	removals, deletedByHand                       int8 // by administrators, so far
}

// An entry is a key of a lock's queue in etcd.
type entry struct {
	name              name
	lease             int8
	created, deleted  revision // deleted is 0 while it stands
	keyAtDeletion     bool     // the session key of its lease stood at the revision of the deletion
	keyBeforeDeletion bool     // the same, one revision earlier
	kept              keeping
	moving            bool     // a copy of the move may be carried out, or was, and was not answered
	noticed           noticed  // by an administrator
	until             leaseSet // leases that were revoked, and not told, when it was noticed
	soonGone          bool     // the lease of its move is about to end
}

// A name is the key of an entry: it says which attempt puts it, in which of its tries, and as which member of its set.
type name struct{ attempt, try, member int8 }

// A version of an entry: a key that was deleted may be put again, by a copy that arrives late. It is none if created
// is 0.
type version struct {
	name    name
	created revision
}

func (e *entry) version() version { return version{e.name, e.created} }

// A lease and its session key.
type lease struct {
	granted bool
	alive   bool     // by etcd's record
	told    bool     // its session knows that it is lost, or has given it up; no hold on it is believed
	key     revision // mod revision of its session key, 0 when that is absent
	gone    revision // at which that key was deleted, 0 unless a writer may ask for it
}

// A session owns one lease at a time.
type session struct {
	lease      int8     // its present one
	gate       revision // mod revision of the session key, as the session knows it
	keyMissing bool     // the session key was deleted by hand and not put again yet
	closing    bool
}

// A stage of an attempt.
type stage int8

const (
	idle      stage = iota // in a line, or waits for a lease
	enqueuing              // has sent its enqueue
	waiting                // its entries are known, and were not all first yet
	removing               // gives up and removes its entries
	holding                // believes that it holds
	done
)

// An attempt is a call of Lock in one session, and the line of goroutines of the same session behind
// it. The head of the line acts as the attempt; the others have no entry. Or it is a call that takes several
// locks, or one in both modes: then it has a set of entries, which one Txn puts.
type attempt struct {
	stage      stage
	try        int8 // names its entries
	lease      int8
	gate       revision // what its last enqueue compared the session key with
	unanswered revision // the largest gate of a copy that was not answered, 0 when each was
	places     [maxMembers]place
	left       [maxMembers]place // of an earlier try that has lost an entry: the others are removed one by one
	leftTry    int8              // their try
	replaces   revision          // in a hand-off: the released entry that the same Txn deletes
	handedOn   bool              // handed off to the next goroutine of its line
	requeued   bool              // its session has lost a lease since it began, or it has lost an entry
	refused    bool              // the sweeper's last put made etcd refuse it, and it has no place yet
	looksAgain bool              // its look at its entries is too old to hold by: see removal.go
	downgraded bool              // it holds the shared entry of its set only; the other may still be there
	suspects   [maxTries][maxMembers]suspect

	// For check; the attempt does not know it.
	queued     bool
	newcomerTo leaseSet // leases that were revoked, and not told, when it first queued
	behind     leaseSet // of these, those before whose revocation another queued that it queued behind
}

// A place is what an attempt knows of the place of an entry in its queue. A hand-off passes it on whole.
type place struct {
	created revision // of the entry; 0 when there is none, or it is removed
	ahead   version  // the nearest entry ahead; none if the queue is free
	seen    revision // the latest revision at which that entry is known to have stood
	others  leaseSet // of the entries of the other mode that stood ahead when it was created
	delay   delay
}

// A delay is a lock delay that runs. The model has no clock. It is over when
// each session whose lease was revoked before it began has been told.
type delay struct {
	running bool
	until   leaseSet
}

// A suspect is an entry that may exist although no attempt accounts for it.
type suspect struct {
	doubt doubt
	delay delay
}

type doubt int8

const (
	none           doubt = iota
	copyMayArrive        // a copy sent at the present gate was not answered: only a put of the session key stops it
	entryMayStand        // no copy can arrive, but one may have been carried out
	entryMustDelay       // an entry was found that must not go before its delay is over
)

// An enqueueCopy is an enqueue that was sent. It is in flight until its sender has read the reply,
// or, if the sender no longer waits, until etcd has carried it out. Both may take any time.
type enqueueCopy struct {
	attempt, try, lease int8
	gate                revision
	replaces            revision
	awaited             bool // its sender still waits for the reply

	answered, accepted bool
	created            revision // the reply, with what stood ahead then
	contended          bool     // something did
}

// find returns an entry, standing or remembered, or nil.
func (s *state) find(v version) *entry {
	for i := range s.entryCount {
		if e := &s.entries[i]; e.created == v.created && e.name == v.name {
			return e
		}
	}
	return nil
}

// standing returns an entry, nil when it does not stand.
func (s *state) standing(v version) *entry {
	if e := s.find(v); e != nil && e.deleted == 0 {
		return e
	}
	return nil
}

// named returns the standing entry with a name.
func (s *state) named(n name) *entry {
	for i := range s.entryCount {
		if e := &s.entries[i]; e.deleted == 0 && e.name == n {
			return e
		}
	}
	return nil
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
