package main

import (
	"bytes"
	"cmp"
	"regexp"
	"strings"
)

var (
	// logged is a line that a test has logged, with more than its place.
	logged = regexp.MustCompile(`(?m)^\s+(\w+\.go:\d+: .*\S.*)$`)
	// crashed is the first line of what ends a test binary.
	crashed = regexp.MustCompile(`(?m)^(panic: .*|fatal error: .*|SIGSEGV: .*|.*ThreadSanitizer: .*)$`)
)

// longestFailure is how much of it is printed.
const longestFailure = 300

// failure returns what a failed test has said first, or why its program crashed.
func failure(said []byte, test string) string {
	before, _, _ := bytes.Cut(said, []byte("--- FAIL: "+test))
	text := cmp.Or(string(crashed.Find(said)), string(bytes.TrimSpace(logged.Find(before))), "it says no more")
	if len(text) > longestFailure {
		text = strings.ToValidUTF8(text[:longestFailure], "") + "…"
	}
	return text
}
