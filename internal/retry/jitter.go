package retry

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast"
)

const (
	// The defaults of backoff.Policy.
	initialDefault = 10 * time.Millisecond
	maxDefault     = time.Second

	// minInitial is the smallest Initial. With a smaller one the loop would spin.
	minInitial = time.Microsecond
)

// CheckPauses checks the fields of a backoff.Policy in a user's argument, such as "Options.Retry". The error is a
// *holdfast.ArgumentError with the name of the field, such as "Options.Retry.Max".
func CheckPauses(argument string, initial, limit time.Duration) error {
	initial, limit = cmp.Or(initial, initialDefault), cmp.Or(limit, maxDefault)
	switch {
	case initial < minInitial:
		return &holdfast.ArgumentError{Argument: argument + ".Initial",
			Reason: fmt.Sprintf("is %v; it must be %v or more", initial, minInitial)}
	case limit < initial:
		return &holdfast.ArgumentError{Argument: argument + ".Max",
			Reason: fmt.Sprintf("is %v; it must not be less than Initial, %v", limit, initial)}
	}
	return nil
}

// Pauses is the sequence of pauses of one loop. It implements the BackOff interface of github.com/cenkalti/backoff/v4,
// never returns that package's Stop, and is not safe for concurrent use.
type Pauses struct {
	initial, limit time.Duration
	bound          time.Duration // of the next pause
	draw           func() float64
}

// NewPauses returns the pauses of a loop for the fields of a valid backoff.Policy.
func NewPauses(initial, limit time.Duration, draw func() float64) *Pauses {
	if draw == nil {
		draw = rand.Float64
	}
	initial = cmp.Or(initial, initialDefault)
	return &Pauses{initial: initial, limit: cmp.Or(limit, maxDefault), bound: initial, draw: draw}
}

// NextBackOff returns the next pause.
func (b *Pauses) NextBackOff() time.Duration {
	bound := b.bound
	b.bound += min(bound, b.limit-bound) // twice as long
	r := b.draw()
	switch {
	case r < 0:
		// cenkalti would take a negative pause for Stop.
		return 0
	case !(r < 1): // NaN too
		return bound
	}
	// float64 can round a large bound up.
	return min(bound, time.Duration(r*float64(bound)))
}

// Reset makes the next pause the first again.
func (b *Pauses) Reset() { b.bound = b.initial }
