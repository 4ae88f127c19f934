package queue

import "time"

// delay is the lock delay of an entry, which must pass before it may hold. In the zero delay none has begun.
type delay struct{ until time.Time }

// delayOf returns a delay that begins now.
func delayOf(d time.Duration) delay { return delay{time.Now().Add(d)} }

// begun reports whether it has begun, and nothing has ended it. That its time has passed is not its end: see
// wait.endDelay.
func (d delay) begun() bool { return !d.until.IsZero() }

// left is the rest of its time.
func (d delay) left() time.Duration {
	if !d.begun() {
		return 0
	}
	return max(0, time.Until(d.until))
}

// runs reports whether its time has not passed.
func (d delay) runs() bool { return d.left() > 0 }

// isOver reports whether it has begun, and its time has passed.
func (d delay) isOver() bool { return d.begun() && !d.runs() }

// past is which revision the store had a lock delay ago, as far as an attempt has heard from replies and its watches.
type past struct {
	revision int64 // 0: not known
	later    int64 // heard since
	at       time.Time
}

// heard records that the store has a revision now.
func (p *past) heard(revision int64, now time.Time, lockDelay time.Duration) {
	if p.later == 0 || now.Sub(p.at) >= lockDelay {
		*p = past{p.later, revision, now}
	}
}

// known returns a revision that the store had a lock delay ago; 0: none is known.
func (p *past) known(now time.Time, lockDelay time.Duration) int64 {
	if now.Sub(p.at) >= lockDelay {
		return p.later
	}
	return p.revision
}
