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
	Read                  // any other read
	Write                 // a request that may be carried out twice without harm
	Unhurried             // what no caller waits for: no copy is sent
	kinds
)

// mayRepeat reports whether etcd's client might send a request of that kind a second time, if it had long enough: see
// race.context.
func (k Kind) mayRepeat() bool { return k == Grant || k == Write || k == Unhurried }

// growth is how many times as long each pause is as the one before. Callers wait for reads and writes, and are not to
// wait much longer than an election in etcd. The others are all that most sessions send: while etcd is slow, their
// copies are what may keep it slow.
func (k Kind) growth() float64 {
	if k == Read || k == Write {
		return 1.5
	}
	return 3
}

const (
	renewalBase = 250 * time.Millisecond
	readBase    = 150 * time.Millisecond
	// A superfluous write costs more than a read: copies that are not answered have to be stopped later.
	writeBase = 250 * time.Millisecond

	// A call lasts at most maxAttempts times the policy's Attempt.
	maxAttempts = 3
)

// pace determines the pause before a request of one kind is sent again: twice as long as the latest reply to one of
// that kind took, but at least base and at most most. Only answered requests count. Otherwise one
// election in etcd would slow down all requests after it.
type pace struct {
	base, most, latest atomic.Int64
}

func (p *pace) set(base, most time.Duration) {
	p.base.Store(int64(base))
	p.most.Store(int64(most))
}

func (p *pace) answered(took time.Duration) { p.latest.Store(int64(took)) }

// pauses returns the pauses for a request that is sent now.
func (s *Sender) pauses(k Kind) pauses {
	p := &s.paces[k]
	base, most := time.Duration(p.base.Load()), time.Duration(p.most.Load())
	return pauses{next: min(max(base, 2*time.Duration(p.latest.Load())), most), most: most, growth: k.growth()}
}

// pauses are the pauses of one request, each longer than the one before. The longer a request is unanswered, the more
// rarely it is sent. So when etcd answers again, say after an election, what the request still waits is in proportion
// to how long it has waited.
type pauses struct {
	next, most time.Duration
	growth     float64
}

func (p *pauses) grow() { p.next = min(time.Duration(p.growth*float64(p.next)), p.most) }
