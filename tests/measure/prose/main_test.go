package main

import "testing"

func TestCountsOfAFile(t *testing.T) {
	t.Parallel()
	const src = `// Package p is one that is small.
package p

// F doesn't say it twice. For example, it takes one key, and not the other one.
func F() int {
	// The reason, which stands inside.
	return 1 // one
}
`
	c, err := countFile("p.go", []byte(src))
	want := count{lines: 4, inside: 6, words: 29, relative: 2, ones: 3, contracted: 1, examples: 1}
	if err != nil || c != want {
		t.Errorf("%+v, %v, want %+v", c, err, want)
	}
}
