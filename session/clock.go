package session

import "time"

// SystemClock returns the default clock: the larger of Go's monotonic clock and, on Linux, CLOCK_BOOTTIME. Go's
// clock stops while the machine is suspended; a lease in etcd does not.
//
// In a testing/synctest bubble use MonotonicClock: the boot-time clock is real even there.
func SystemClock() func() time.Duration {
	mono, boot := MonotonicClock(), bootClock()
	return func() time.Duration { return max(mono(), boot()) }
}

// MonotonicClock returns Go's monotonic clock.
func MonotonicClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
