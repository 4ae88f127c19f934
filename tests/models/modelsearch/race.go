//go:build race

package modelsearch

// Race reports whether the race detector is built in, which makes a search ten times slower.
const Race = true
