package attempt

import (
	"sync/atomic"
	"time"
)

// Kind says what a request is. Each kind has a memory of its own of how long
// answers take.
type Kind int

const (
	Renewal Kind = iota // KeepAlive
	Proof               // the read that confirms a renewal
	Read                // any other read
	Write               // a request that may be carried out twice without harm
	kinds
)

const (
	renewalBase = 250 * time.Millisecond
	readBase    = 150 * time.Millisecond
	// A write that is sent too often costs more than a read: the copies that are
	// not answered have to be shut out later.
	writeBase = 250 * time.Millisecond

	// maxRepeat bounds the pauses between the sends of a question. Those of a
	// write are bounded by the policy's Attempt, since a commit may be slow.
	maxRepeat = 2 * time.Second

	// maxAttempts bounds a call as a whole, in times of the policy's Attempt.
	maxAttempts = 3
)

// pace is how long the answer to a request of one kind is waited for before the
// request is sent again: at first at least base, at most most, in between twice
// as long as the latest answer took. Only answers count. If what is not answered
// counted, one election in etcd would slow down every request after it.
type pace struct {
	base, most, latest atomic.Int64
}

func (p *pace) set(base, most time.Duration) {
	p.base.Store(int64(base))
	p.most.Store(int64(most))
}

func (p *pace) answered(took time.Duration) { p.latest.Store(int64(took)) }

// pauses returns those of a request that is sent now.
func (p *pace) pauses() pauses {
	most := time.Duration(p.most.Load())
	return pauses{next: min(time.Duration(max(p.base.Load(), 2*p.latest.Load())), most), most: most}
}

// pauses are those of one request. Each is half as long again as the one before:
// so when etcd begins to answer, after an election, the request is sent again
// when at most half as much time again has passed, and the more often it was sent
// in vain, the more rarely it is.
type pauses struct{ next, most time.Duration }

func (p *pauses) grow() { p.next = min(p.next+p.next/2, p.most) }
