package session

import "time"

// SystemClock returns the default clock: the larger of Go's monotonic clock, which stops while the machine sleeps, and,
// on Linux, CLOCK_BOOTTIME. That is real even in a testing/synctest bubble: use MonotonicClock there.
func SystemClock() func() time.Duration {
	mono, boot := MonotonicClock(), bootClock()
	return func() time.Duration { return max(mono(), boot()) }
}

// MonotonicClock returns Go's monotonic clock.
func MonotonicClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
