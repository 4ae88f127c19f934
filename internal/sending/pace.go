package sending

import (
	"sync/atomic"
	"time"
)

// Kind is the kind of a request. How long answers take is tracked for each kind.
type Kind int

const (
	Renewal   Kind = iota // KeepAlive
	Proof                 // the read that confirms a renewal
	Grant                 // of a lease, and what belongs to it
	Poll                  // of what is held
	Read                  // any other read
	Write                 // a request that may be carried out twice without harm
	Unhurried             // what no caller waits for: no copy is sent
	kinds
)

// isOwn reports whether the session sends the request for itself: to keep its lease, or to get one.
func (k Kind) isOwn() bool { return k == Renewal || k == Proof || k == Grant || k == Poll }

// growth is how many times as long each pause is as the one before. Callers wait for reads and writes, and are not to
// wait much longer than an election in etcd. A session's own requests are all that most sessions send: while etcd is
// slow, their copies are what may keep it slow.
func (k Kind) growth() float64 {
	if k.isOwn() {
		return 3
	}
	return 1.5
}

// base is the shortest pause. A superfluous write costs more than a read: copies that are not answered have to be
// stopped later.
func (k Kind) base() time.Duration {
	if k == Read || k == Poll {
		return 150 * time.Millisecond
	}
	return 250 * time.Millisecond
}

// pace is how long the latest reply to a request of one kind took. Only answered requests count. Otherwise one election
// in etcd would slow down all requests after it.
type pace struct{ latest atomic.Int64 }

func (p *pace) answered(took time.Duration) { p.latest.Store(int64(took)) }

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

// partsOfTime: a request that has a limited time is sent again after a 25th of that at the latest, if replies are fast.
const partsOfTime = 25

// pauses returns the pauses for a request that is sent now.
func (s *Sender) pauses(k Kind, left func() time.Duration) pauses {
	base := k.base()
	if left != nil {
		base = min(base, left()/partsOfTime)
	}
	return pauses{base, max(base, 2*time.Duration(s.paces[k].latest.Load())), k.growth(), left}
}

// pause returns the next pause, and makes the one after it longer. The pauses of a request that has a limited time are at
// most two thirds of what is left: so one that is sent again while nothing answers is in time when etcd comes back.
func (p *pauses) pause() time.Duration {
	pause := p.next
	if p.next < longest {
		p.next = min(time.Duration(p.growth*float64(p.next)), longest)
	}
	if p.left != nil {
		pause = max(p.base, min(pause, p.left()*2/3))
	}
	return pause
}
