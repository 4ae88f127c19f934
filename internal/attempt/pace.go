package attempt

import (
	"math"
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
	writeBase   = 500 * time.Millisecond

	// maxRepeat bounds the pause between the sends of a question.
	maxRepeat = 2 * time.Second

	// maxCopies bounds how often a write is sent again beside the first time:
	// each copy that is not answered has to be shut out later.
	maxCopies = 3

	never = time.Duration(math.MaxInt64)

	// maxAttempts bounds a call as a whole, in times of the policy's Attempt.
	maxAttempts = 3
)

// pace is how long answers of one kind are waited for before the request is sent
// again: at least base, at most most, in between twice as long as the latest
// answer took. Only answers count. If what is not answered counted, one election
// in etcd would slow down every request after it.
type pace struct {
	base, most, latest atomic.Int64
}

func (p *pace) set(base, most time.Duration) {
	p.base.Store(int64(base))
	p.most.Store(int64(most))
}

func (p *pace) answered(took time.Duration) { p.latest.Store(int64(took)) }

// schedule is that of a request which is sent now.
func (p *pace) schedule(k Kind) schedule {
	most := p.most.Load()
	first := min(max(p.base.Load(), 2*p.latest.Load()), most)
	if k == Write {
		return schedule{time.Duration(first), time.Duration(first), time.Duration(first), never}
	}
	return schedule{time.Duration(first), time.Duration(min(3*first, most)), time.Duration(most), time.Duration(most)}
}

// schedule holds the pauses before a request is sent again; the last one stays.
type schedule [maxCopies + 1]time.Duration

func (s schedule) after(repeats int) time.Duration { return s[min(repeats, len(s)-1)] }
