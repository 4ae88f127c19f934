package main

import (
	"context"
	"errors"
	"testing"
)

// An error on a goroutine of a side ends the operation that waits for it, instead of blocking it forever.
func TestContenderErrorEndsTheMeasurement(t *testing.T) {
	etcds := make(stores)
	failed := errors.New("failed")
	turns := 0
	holds := make(chan struct{}, 1)
	sub := subject{name: "failing", clientOnly: true, holdfast: func(e *env) (op, error) {
		return takeTurns(e, []contender{func(context.Context) (func(context.Context) error, error) {
			holds <- struct{}{}
			if turns++; turns == 5 {
				return nil, failed
			}
			return func(context.Context) error { <-holds; return nil }, nil
		}})
	}}
	if _, err := (plan{rounds: 9, time: 9}).measure(etcds, sub, 0); !errors.Is(err, failed) {
		t.Error(err)
	}
}
