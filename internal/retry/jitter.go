package retry

import (
	"cmp"
	"math/rand/v2"
	"time"

	cenkalti "github.com/cenkalti/backoff/v4"
)

// The defaults of backoff.Policy.
const (
	initialDefault    = 10 * time.Millisecond
	maxDefault        = time.Second
	multiplierDefault = 2.0
)

// Pauses is the sequence of pauses of one loop. It implements the BackOff interface of github.com/cenkalti/backoff/v4,
// never returns that package's Stop, and is not safe for concurrent use.
type Pauses struct {
	bounds *cenkalti.ExponentialBackOff
	rand   func() float64
}

var _ cenkalti.BackOff = (*Pauses)(nil)

// NewPauses returns the pauses of a loop for the fields of a valid backoff.Policy.
func NewPauses(initial, limit time.Duration, multiplier float64, draw func() float64) *Pauses {
	if draw == nil {
		draw = rand.Float64
	}
	return &Pauses{
		// cenkalti's own jitter cannot be full jitter. A factor f spreads over [1-f, 1+f] times the interval, so f = 1
		// means [0, 2×]. And the interval is capped before it is spread, so pauses can exceed the limit. With factor 0
		// cenkalti returns the exact upper bounds, and NextBackOff draws.
		bounds: cenkalti.NewExponentialBackOff(
			cenkalti.WithInitialInterval(cmp.Or(initial, initialDefault)),
			cenkalti.WithMaxInterval(cmp.Or(limit, maxDefault)),
			cenkalti.WithMultiplier(cmp.Or(multiplier, multiplierDefault)),
			cenkalti.WithRandomizationFactor(0),
			cenkalti.WithMaxElapsedTime(0),
		),
		rand: draw,
	}
}

// NextBackOff returns the next pause.
func (b *Pauses) NextBackOff() time.Duration {
	bound := b.bounds.NextBackOff()
	r := b.rand()
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
func (b *Pauses) Reset() { b.bounds.Reset() }
