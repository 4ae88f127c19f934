//go:build !race

package httpfence_test

const race = false
