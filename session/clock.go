package session

import "time"

// Clock tells how much time has passed since some fixed moment of its own.
// It must never run backwards and must go on counting while the machine is
// suspended. It is called on every Check: keep it to nanoseconds.
type Clock func() time.Duration

// SystemClock returns the default clock: the larger of Go's monotonic clock
// and, on Linux, CLOCK_BOOTTIME. Go's clock stands still while the machine is
// suspended; a lease in etcd does not.
//
// Inside a testing/synctest bubble use MonotonicClock: the boot-time clock is
// the real one even there.
func SystemClock() Clock {
	mono, boot := MonotonicClock(), bootClock()
	return func() time.Duration { return max(mono(), boot()) }
}

// MonotonicClock returns a clock that reads Go's monotonic time only.
func MonotonicClock() Clock {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
