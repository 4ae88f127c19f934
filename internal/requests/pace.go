package requests

import (
	"sync"
	"time"
)

// Kind is the kind of a request. The sender tracks for each kind how long replies take.
type Kind int

const (
	Renewal   Kind = iota // KeepAlive
	Proof                 // the read that confirms a renewal; or a poll of what is held
	Grant                 // of a lease, and what belongs to it
	Read                  // any other read, for a caller
	Write                 // for a caller; it may be carried out twice without harm
	Unhurried             // no caller waits for it: it has no copies
	kinds
)

// isOwn reports whether the session sends the request for itself: to keep or get its lease, to look after holds.
func (k Kind) isOwn() bool { return k < Read }

// pauses are the pauses of one request. The first is twice as long as the latest reply to a request of the kind took.
type pauses struct {
	base, next time.Duration
	growth     float64
	left       func() time.Duration // see OnceWithin
}

// longest bounds pauses that grow.
const longest = 5 * time.Second

// pauses returns the pauses for a request that is sent now.
func (s *Sender) pauses(k Kind, left func() time.Duration) pauses {
	p := pauses{base: 250 * time.Millisecond, next: 2 * time.Duration(s.latest[k].Load()), growth: 1.5, left: left}
	if k == Read { // a superfluous write costs more: if it has no reply, it must be stopped later
		p.base = 150 * time.Millisecond
	}
	if k.isOwn() { // most sessions send nothing else; callers shall not wait much longer than an election in etcd
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

// pause returns the next pause, and makes the pause after it longer.
func (p *pauses) pause() time.Duration {
	pause := max(p.base, p.next)
	// When etcd answers again, say after an election, the request waits on for a part of what it has waited.
	p.next = min(time.Duration(p.growth*float64(pause)), longest)
	if p.left != nil {
		// When etcd comes back shortly before the end, a copy is still in time.
		pause = max(p.base, min(pause, p.left()*2/3))
	}
	return pause
}

// budget pays for rounds of copies. If etcd answers a copy sooner than the first send, the request is paid back for its
// rounds: some member hangs while others answer, and rounds cost etcd little. Otherwise all of etcd is slow, and copies
// only add to its load: replies pay for them, or time does.
//
// A caller that cannot pay stands in line.
type budget struct {
	rounds    int // so many may be unpaid
	price     int // of each copy, in replies
	endpoints func() int

	mu    sync.Mutex    // protects what follows
	owed  int           // replies
	line  []func() bool // each sends a caller's round, unless the caller has gone
	timer *time.Timer   // of payByTime; nil: it is not set
	pause time.Duration // before payByTime
}

const (
	// Callers may send two rounds: an election in etcd may swallow the first. After that their copies are at most a tenth
	// of the replies. The session's own requests are few, so their copies may be a third.
	callerRounds, callerPrice = 2, 10
	ownRounds, ownPrice       = 1, 3

	// Time pays for a round after a line has waited for firstByTime, about as long as an election in etcd, and for each
	// next round after twice as long, until all is paid.
	firstByTime, mostByTime = time.Second, 5 * time.Second
)

// borrow takes up what a round costs, or reports false if too much is owed.
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

// wait puts a caller in line. send is called as soon as its round can be paid.
func (b *budget) wait(send func() bool) {
	b.mu.Lock()
	defer b.pay(0) // after Unlock: the round may be paid already
	defer b.mu.Unlock()
	b.line = append(b.line, send)
}

func (b *budget) cost() int { return b.price * b.endpoints() }

// pay lowers what is owed, and lets callers in line send their rounds.
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
	// A round that wins pays for the next in line, so the first caller that gets past a hung member sets off all others.
	// For example, ten callers and three endpoints:
	//
	//	0 ms    ten reads are sent; replies take 75 ms now, and a round costs 30 replies
	//	150 ms  two callers send a round each, and owe 60. Eight stand in line
	//	225 ms  a copy wins: 30 are paid back, and the third caller sends its round
	for len(b.line) > 0 && b.borrowLocked() {
		if !b.sendNextLocked() {
			b.owed = max(0, b.owed-b.cost())
		}
	}
	if len(b.line) > 0 {
		b.awaitTimeLocked()
	}
}

// sendNextLocked sends the round of the first caller in line, or reports false if the caller has gone.
func (b *budget) sendNextLocked() bool {
	send := b.line[0]
	b.line = b.line[1:]
	b.mu.Unlock() // send locks its race
	defer b.mu.Lock()
	return send()
}

func (b *budget) awaitTimeLocked() {
	if b.timer == nil {
		b.timer = time.AfterFunc(b.pause, b.payByTime)
	}
}

func (b *budget) payByTime() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timer = nil
	for len(b.line) > 0 && !b.sendNextLocked() { // that caller has gone
	}
	b.pause = min(2*b.pause, mostByTime)
	if len(b.line) > 0 {
		b.awaitTimeLocked()
	}
}
