//go:build race

package httpfence_test

// race reports whether the race detector is on, which adds allocations.
const race = true
