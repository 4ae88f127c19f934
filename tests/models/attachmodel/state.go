package attachmodel

const sessions = 3

// Where a key is: on the lease of a session, by its number, or on one of these.
const (
	nowhere  = -1 // it does not stand
	onTicket = sessions
)

// A state is all of etcd, of the sessions, and of the network between them. It is copied by assignment, and compared by
// ==.
type state struct {
	entry    int8 // where it is
	mod      int8 // its mod revision, from 1; its create revision never changes
	claim    int8 // where it is
	names    int8 // the session that it names
	granted  bool // D
	ticket   int8 // the mod revision that the latest ticket has; 0: there is none
	sessions [sessions]session
	copies   [2]late
	waiter   waiter
	faulty   bool // something has gone wrong after which a delay may be needed
	left     budget
}

// A session has a pair of leases, and one attempt at the name at a time.
type session struct {
	l1, l2 bool
	told   bool // it knows that L1 is lost, or has closed
	stage  stage
	mod    int8 // that its attempt compares; of a hold: that it knows
}

type stage int8

const (
	idle      stage = iota
	holding         // believes that it holds
	detaching       // its hold has ended; what became of its Txn is not known
	attaching       // what became of its Txn is not known
	ready           // a reply says that it holds, and is not read yet
	removing        // deletes E by its create revision
	sweeping        // reads E, to delete it if it is on this session's L1
	swept           // has read that it is
)

// A late copy of a Txn.
type late struct {
	kind    kind
	session int8
	mod     int8 // that it compares
}

type kind int8

const (
	none kind = iota
	detach
	attach
)

// A waiter stands behind the entry.
type waiter struct {
	delays  bool // only a dead claim is ahead
	without bool // a look has shown that, while the session key was gone
	holds   bool
}

// A budget says how often each may still happen.
type budget struct{ attaches, detaches, lost, lates, revokes, deletes, closes int8 }

// reduce makes states equal that differ in nothing that can still matter.
func (s *state) reduce() {
	if s.entry == nowhere {
		s.mod, s.ticket = 0, 0
	}
	if s.claim == nowhere {
		s.names = 0
	}
	for i := range s.sessions {
		if x := &s.sessions[i]; x.stage == idle || x.stage == removing {
			x.mod = 0
		}
	}
	for n := range s.copies {
		if c := &s.copies[n]; s.entry == nowhere {
			*c = late{}
		}
	}
	if s.copies[0].kind == none {
		s.copies[0], s.copies[1] = s.copies[1], late{}
	}
}

// stands reports whether the session key of a session does.
func (s *state) stands(i int8) bool { return s.sessions[i].l1 }

func (s *state) deleteBoth() { s.entry, s.claim = nowhere, nowhere }
