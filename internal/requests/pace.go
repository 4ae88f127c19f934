package requests

import "time"

// Kind is the kind of a request. How long answers take is tracked for each kind.
type Kind int

const (
	Renewal   Kind = iota // KeepAlive
	Proof                 // the read that confirms a renewal; or a poll of what is held
	Grant                 // of a lease, and what belongs to it
	Read                  // any other, of a caller
	Write                 // a request of a caller that may be carried out twice without harm
	Unhurried             // what no caller waits for: no copy is sent
	kinds
)

// isOwn reports whether the session sends the request for itself: to keep its lease, to get one, to look after holds.
func (k Kind) isOwn() bool { return k < Read }

// pauses are the pauses of one request. The first is twice as long as the latest reply to a request of the kind took,
// the next ones are longer: the longer a request is unanswered, the more rarely it is sent. So when etcd answers again,
// say after an election, what the request still waits is in proportion to how long it has waited.
type pauses struct {
	base, next time.Duration
	growth     float64
	left       func() time.Duration // see OnceWithin
}

// longest bounds pauses that grow.
const longest = 5 * time.Second

// pauses returns the pauses for a request that is sent now. A superfluous write costs more than a read: copies that are
// not answered have to be stopped later. The session's own requests are all that most sessions send, so their pauses
// grow faster; callers are not to wait much longer than an election in etcd.
func (s *Sender) pauses(k Kind, left func() time.Duration) pauses {
	p := pauses{base: 250 * time.Millisecond, next: 2 * time.Duration(s.latest[k].Load()), growth: 1.5, left: left}
	if k == Read {
		p.base = 150 * time.Millisecond
	}
	if k.isOwn() {
		p.growth = 3
	}
	if left != nil {
		p.base = max(10*time.Millisecond, min(p.base, left()/25)) // several copies find room
		p.next = min(p.next, left()/2)                            // the first have as long for their replies
	}
	if k == Unhurried {
		p.next = 2 * longest // Once gives it up before that
	}
	return p
}

// pause returns the next pause, and makes the one after it longer. The pauses of a request that has a limited time are
// at most two thirds of what is left, so that a copy is in time when etcd comes back shortly before the end.
func (p *pauses) pause() time.Duration {
	pause := max(p.base, p.next)
	if p.next < longest {
		p.next = min(time.Duration(p.growth*float64(pause)), longest)
	}
	if p.left != nil {
		pause = max(p.base, min(pause, p.left()*2/3))
	}
	return pause
}
