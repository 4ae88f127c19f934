package main

import (
	"strings"
	"testing"
	"time"
)

// The numbers are those of docs/fencing.md, "Choosing the TTL".
func TestCheckTellsWhenAnotherHoldsTheLocksOfAMachineThatVanished(t *testing.T) {
	for _, test := range []struct {
		ttl, least time.Duration
		within     string
	}{
		{15 * time.Second, 2 * time.Second, "within 17.5s,"},
		{5 * time.Second, 2 * time.Second, "within 7.5s,"},
		{5 * time.Second, 10 * time.Second, "within 12.5s,"}, // etcd's least is granted
	} {
		var said finding
		c := &checker{ttl: test.ttl, findings: findings{print: func(f finding) { said = f }}}
		if c.adviseTTL(test.least, time.Millisecond); said.Check != "TTL" || !strings.Contains(said.Detail, test.within) {
			t.Errorf("TTL %v, at least %v: %+v, want %q", test.ttl, test.least, said, test.within)
		}
	}
}
