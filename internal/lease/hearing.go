package lease

import "sync/atomic"

// Hearing is what those who hold something on a lease are told: by the watches of its session key, and by the reads
// that prove its renewals.
type Hearing struct {
	Errands Errands
	watched atomic.Bool
	bell    chan struct{}
}

// Watched reports whether the session key is watched on so many members that a revocation is told although some of them
// are sick. While it is not, holders must ask etcd often enough themselves.
func (h *Hearing) Watched() bool { return h.watched.Load() }

// SetWatched records whether it is.
func (h *Hearing) SetWatched(watched bool) { h.watched.Store(watched) }

// Bell receives a value after the session key was put: an administrator may have put a notice into an entry of the
// lease. It has one reader. Until that looks there is one value, however many puts there were.
func (h *Hearing) Bell() <-chan struct{} { return h.bell }

// Heard records a mod revision of the session key that a watch or a read has shown. Each rings the bell once, also that
// of a put of the session itself: those are rare, and their replies may come later than the watch tells.
func (l *Lease) Heard(rev int64) {
	l.mu.Lock()
	rings := rev > l.heard
	l.heard, l.gate = max(l.heard, rev), max(l.gate, rev)
	l.mu.Unlock()
	if rings {
		select {
		case l.bell <- struct{}{}:
		default: // it rings already
		}
	}
}
