package requests

import (
	"sync"
	"time"
)

// budget pays for rounds of copies. The rounds of a request are paid back if a copy is answered before the first send:
// then a member hangs while others answer, and rounds cost etcd little. Otherwise etcd as a whole is slow, and copies
// only add to its load: answers pay for them, or time does.
//
// A caller that cannot pay stands in line. A round that wins pays for that of the next in line, so the first caller
// that gets past a hung member sets off all others.
type budget struct {
	rounds    int // that may be unpaid
	price     int // of each copy, in answers
	endpoints func() int

	mu    sync.Mutex    // protects what follows
	owed  int           // answers
	line  []func() bool // each sends a caller's round, unless the caller has gone
	timer *time.Timer   // payByTime will run; nil: it will not
	pause time.Duration // until then
}

const (
	// Callers may send two rounds: an election in etcd may swallow the first. Then their copies are at most a tenth of the
	// requests that are answered. The session's own requests are few, so they may have a third.
	callerRounds, callerPrice = 2, 10
	ownRounds, ownPrice       = 1, 3

	// Time pays for the round of a line that has waited for firstByTime, about as long as an election in etcd takes, and
	// for the next ones after twice as long each, until all is paid.
	firstByTime, mostByTime = time.Second, 5 * time.Second
)

// borrow takes up what a round costs, and reports whether that is possible.
func (b *budget) borrow() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.borrowLocked()
}

func (b *budget) borrowLocked() bool {
	if b.owed > (b.rounds-1)*b.cost() {
		return false
	}
	b.owed += b.cost()
	return true
}

// wait has send called as soon as its round can be paid.
func (b *budget) wait(send func() bool) {
	b.mu.Lock()
	defer b.pay(0)
	defer b.mu.Unlock()
	b.line = append(b.line, send)
}

func (b *budget) cost() int { return b.price * b.endpoints() }

// pay lowers what is owed, and has callers in line send their rounds.
func (b *budget) pay(answers int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.owed = max(0, b.owed-answers); b.owed == 0 {
		b.pause = firstByTime
		if b.timer != nil {
			b.timer.Stop()
			b.timer = nil
		}
	}
	for len(b.line) > 0 && b.borrowLocked() {
		if !b.sendNextLocked() {
			b.owed = max(0, b.owed-b.cost())
		}
	}
	if len(b.line) > 0 {
		b.awaitTimeLocked()
	}
}

// sendNextLocked sends the round of the first caller in line, and reports false if that has gone.
func (b *budget) sendNextLocked() bool {
	send := b.line[0]
	b.line = b.line[1:]
	b.mu.Unlock()
	defer b.mu.Lock()
	return send()
}

func (b *budget) awaitTimeLocked() {
	if len(b.line) > 0 && b.timer == nil {
		b.timer = time.AfterFunc(b.pause, b.payByTime)
	}
}

func (b *budget) payByTime() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timer = nil
	for len(b.line) > 0 {
		if b.sendNextLocked() {
			b.pause = min(2*b.pause, mostByTime)
			break
		}
	}
	b.awaitTimeLocked()
}
