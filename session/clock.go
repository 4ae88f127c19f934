package session

import "time"

// SystemClock returns the default clock: the larger of Go's monotonic clock
// and, on Linux, CLOCK_BOOTTIME. Go's clock stands still while the machine is
// suspended; a lease in etcd does not.
//
// Inside a testing/synctest bubble use MonotonicClock: the boot-time clock is
// the real one even there.
func SystemClock() func() time.Duration {
	mono, boot := MonotonicClock(), bootClock()
	return func() time.Duration { return max(mono(), boot()) }
}

// MonotonicClock returns a clock that reads Go's monotonic time only.
func MonotonicClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
