package robustness

import (
	"fmt"
	"sync"
	"time"
)

// A referee samples Check of all holds of one name and records how long two of them
// succeeded at the same time.
type referee struct {
	mu       sync.Mutex // protects what follows
	holders  []hold     // acquired, and the release has not begun
	since    time.Time  // since when two hold; zero if at most one does
	overlaps []time.Duration

	done, stopped chan struct{}
}

func (r *referee) enter(h hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holders = append(r.holders, h)
	r.sample()
}

func (r *referee) leave(h hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sample()
	for i, other := range r.holders {
		if other == h {
			r.holders = append(r.holders[:i], r.holders[i+1:]...)
			break
		}
	}
	r.sample()
}

// sample is called with mu held.
func (r *referee) sample() {
	holding := 0
	for _, h := range r.holders {
		if h.Check() == nil {
			holding++
		}
	}
	switch now := time.Now(); {
	case holding > 1 && r.since.IsZero():
		r.since = now
	case holding <= 1 && !r.since.IsZero():
		r.overlaps = append(r.overlaps, now.Sub(r.since))
		r.since = time.Time{}
	}
}

// watch samples until stop.
func (r *referee) watch() {
	r.done, r.stopped = make(chan struct{}), make(chan struct{})
	go func() { // joined by stop
		defer close(r.stopped)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.mu.Lock()
				r.sample()
				r.mu.Unlock()
			case <-r.done:
				return
			}
		}
	}()
}

func (r *referee) stop() {
	close(r.done)
	<-r.stopped
}

// summary returns the number, the median and the maximum of the measurements.
func (d *durations) summary() string {
	all := d.sorted()
	if len(all) == 0 {
		return "not measured"
	}
	return fmt.Sprintf("%d times, median %v, maximum %v", len(all),
		all[len(all)/2].Round(time.Microsecond), all[len(all)-1].Round(time.Microsecond))
}
