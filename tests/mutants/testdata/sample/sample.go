// Package sample has one place for each kind of mutant, and tests that notice some of them.
package sample

import (
	"errors"
	"time"
)

const limit = 3

func full(n int) bool {
	return n >= limit
}

func same(a, b string) bool { return a == b }

func both(a, b bool) int {
	if a && b {
		return 1
	}
	return 0
}

type counter struct{ n, calls int }

func (c *counter) add(n int) (err error) {
	c.calls++
	defer c.note()
	if n < 0 {
		c.n = 0
		return errors.New("negative")
	}
	c.n += n
	return nil
}

func (c *counter) note() { c.calls += 10 }

func pause(slow bool) time.Duration {
	d := time.Second
	if slow {
		return 2 * d
	}
	return d
}

func spin(n int) (sum int) {
	for n > 0 {
		n--
		sum++
	}
	return sum
}

func notCalled(b bool) bool { return !b }
