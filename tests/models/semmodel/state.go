package semmodel

import "slices"

const (
	maxAttempts = 4
	maxPlaces   = 24 // the keys of an attempt on a pair of leases; a search has two for each attempt, a record more
	maxLate     = 2  // copies of Txns on their way
)

// A revision of etcd's store; 0 means none. The search renumbers the revisions of each state, so these are only in
// order, and small.
type revision = int8

// A state is all of etcd and of the sessions. It holds only small numbers, so it is copied by assignment and compared
// by ==.
type state struct {
	places   [maxPlaces]place
	pairs    [2 * maxAttempts]pair // pairs 2i and 2i+1 are those of session i
	attempts [maxAttempts]attempt
	late     [maxLate]txn

	limit, most, resized int8 // the limit, the highest so far, and how often it was changed
	limitAt              revision

	left budget // what may still go wrong
}

// A place is what stands in etcd at the keys of one attempt. A turn T that is marked is a permit, as E is. The claim C
// of either has the same create revision. 0: it does not stand.
type place struct {
	permit, turn, claim revision // create revisions of E, T and C

	by     int8 // the attempt that put them last
	marked bool // T was put a second time
	counts bool // C is that of a permit: it was put with E, or was marked with T
	moved  bool // E or T is on a lease of its own, by an administrator's removal
	held   bool // the holder of a moved key believed in it then, so it stands until that one is told
}

func (p *place) isPermit() bool { return p.permit != 0 || p.turn != 0 && p.marked }
func (p *place) waits() bool    { return p.turn != 0 && !p.marked }

// isDead reports whether the claim stands without what it was put with.
func (p *place) isDead() bool { return p.claim != 0 && p.permit == 0 && p.turn == 0 }

// A pair of leases of a session: L1 has the session key S, permits and turns; L2 has the claims.
type pair struct{ granted, l1, l2, key, told, crashed, closing bool }

var granted = pair{granted: true, l1: true, l2: true, key: true}

func (l *pair) usable() bool { return l.granted && !l.told }

type stage int8

const (
	done stage = iota
	idle
	puts     // its put is to be sent, again if it had no reply
	placed   // its permit E stands, and it is not known whether that fits
	converts // E did not fit: it is to be replaced by a turn T
	waits    // for the turn ahead to be marked or gone
	front    // no turn that waits is ahead of its own: it watches the permits and the limit
	delays   // only dead claims are in the way
	clears   // dead claims are to be deleted
	admits   // turns are to be marked
	ready    // a reply has shown that it may hold
	holds
	leaves // its keys are to be deleted
	swept  // the session key was put again: no copy of a put can come any more
)

type attempt struct {
	known
	stage  stage
	again  bool     // it does not queue again
	unsure bool     // a copy of its put may come yet
	waited bool     // it has delayed
	behind int8     // the place of the turn that it waits for
	ahead  revision // and its create revision
	news   bool     // the permits or the limit have changed since its look
	alive  uint32   // places of dead claims whose session key stood: they are waited for until their holders are told
}

// known is what an attempt knows by its latest look, and what its Txns say.
type known struct {
	pair    int8                // 0 or 1, of its session
	created revision            // of its permit or turn
	limitAt revision            // of the limit
	batch   [maxPlaces]revision // the turns that fit, and the dead claims to be deleted with a minus
}

// A txn is a request that changes the store. A copy of it may be carried out at any later time.
type txn struct {
	known
	kind kind
	by   int8
}

// addLate panics where a scenario has more late copies than maxLate.
func (s *state) addLate(x txn) { s.late[slices.Index(s.late[:], txn{})] = x }

type kind int8

const none, put, convert, clear, admit, release kind = 0, 1, 2, 3, 4, 5

// numbers calls f for each revision in a state.
func (s *state) numbers(f func(*revision)) {
	of := func(n *known) {
		f(&n.created)
		f(&n.limitAt)
		for k := range n.batch {
			f(&n.batch[k])
		}
	}
	f(&s.limitAt)
	for k := range s.places {
		f(&s.places[k].permit)
		f(&s.places[k].turn)
		f(&s.places[k].claim)
	}
	for i := range s.attempts {
		of(&s.attempts[i].known)
		f(&s.attempts[i].ahead)
	}
	for i := range s.late {
		of(&s.late[i].known)
	}
}

// reduce makes states equal that differ in nothing that can still matter, and numbers the revisions again.
func (s *state) reduce() {
	for k := range s.places {
		if p := &s.places[k]; p.permit == 0 && p.turn == 0 && p.claim == 0 {
			*p = place{}
		}
	}
	for i := range s.attempts {
		a := &s.attempts[i]
		if a.stage == done {
			*a = attempt{waited: a.waited}
		}
		if a.stage != delays && a.stage != clears && a.stage != admits {
			a.batch, a.alive, a.limitAt = [maxPlaces]revision{}, 0, 0
		}
		if a.stage != front && a.stage != delays {
			a.news = false
		}
		if a.stage != waits {
			a.behind, a.ahead = 0, 0
		}
	}
	var number [128]revision
	s.numbers(func(r *revision) { number[max(*r, -*r)] = 1 })
	number[0] = 0
	for r := 1; r < len(number); r++ {
		number[r] += number[r-1] // so many differ up to here
	}
	s.numbers(func(r *revision) { *r = number[max(*r, 0)] - number[max(-*r, 0)] })
}

// now returns the revision of the next Txn.
func (s *state) now() (last revision) {
	s.numbers(func(r *revision) { last = max(last, *r, -*r) })
	return last + 1
}
