package main

import "testing"

func TestCountsOfAFile(t *testing.T) {
	t.Parallel()
	const src = `// Package p is one that is small.
package p

// F does what it says.
func F() int {
	// The reason, which stands inside.
	return 1 // one
}
`
	c, err := countFile("p.go", []byte(src))
	if want := (count{lines: 4, inside: 6, words: 18, relative: 2}); err != nil || c != want {
		t.Errorf("%+v, %v, want %+v", c, err, want)
	}
}
