//go:build !linux

package session

import "time"

// bootTime is zero where there is no CLOCK_BOOTTIME.
func bootTime() time.Duration { return 0 }
