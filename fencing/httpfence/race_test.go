//go:build race

package httpfence_test

// race is on: allocations are not those of a program.
const race = true
