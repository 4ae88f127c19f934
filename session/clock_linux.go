package session

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock reads CLOCK_BOOTTIME, which counts the time that the machine sleeps. If the kernel refuses, it stays at
// zero, and the monotonic clock decides alone.
func bootClock() func() time.Duration {
	read := func() time.Duration {
		var ts unix.Timespec
		if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
			return 0
		}
		return time.Duration(ts.Nano())
	}
	start := read()
	return func() time.Duration { return read() - start }
}
