package inquest

import "time"

// Past is which revision the store had a lock delay ago, as far as an attempt has heard from replies and its watches.
type Past struct {
	revision int64 // 0: not known
	later    int64 // heard since
	at       time.Time
}

// Hear records that the store has a revision now.
func (p *Past) Hear(revision int64, now time.Time, lockDelay time.Duration) {
	if p.later == 0 || now.Sub(p.at) >= lockDelay {
		*p = Past{p.later, revision, now}
	}
}

// Known returns a revision that the store had a lock delay ago; 0: none is known.
func (p *Past) Known(now time.Time, lockDelay time.Duration) int64 {
	if now.Sub(p.at) >= lockDelay {
		return p.later
	}
	return p.revision
}
