//go:build !linux

package session

import "time"

// bootClock stays at zero where there is no CLOCK_BOOTTIME.
func bootClock() func() time.Duration { return func() time.Duration { return 0 } }
