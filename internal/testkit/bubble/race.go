//go:build race

package bubble

// Race reports whether the race detector is built in.
const Race = true
