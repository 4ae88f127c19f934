package main

import (
	"bytes"
	"cmp"
	"regexp"
	"strings"
)

var (
	// logged is a line that a test has logged.
	logged = regexp.MustCompile(`(?m)^\s+(\w+\.go:\d+: .*)$`)
	// crashed is the first line of what ends a test binary.
	crashed = regexp.MustCompile(`(?m)^(panic: .*|fatal error: .*|SIGSEGV: .*|.*ThreadSanitizer: .*)$`)
)

// longestFailure is how much of it is printed.
const longestFailure = 300

// failure returns what a failed test has said last before it failed, or why its program crashed.
func failure(said []byte, test string) string {
	before, _, _ := bytes.Cut(said, []byte("--- FAIL: "+test))
	last := ""
	if lines := logged.FindAllSubmatch(before, -1); len(lines) > 0 {
		last = string(lines[len(lines)-1][1])
	}
	text := cmp.Or(string(crashed.Find(said)), last, "it says no more")
	if len(text) > longestFailure {
		text = strings.ToValidUTF8(text[:longestFailure], "") + "…"
	}
	return text
}
