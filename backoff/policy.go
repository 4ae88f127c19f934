package backoff

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	cenkalti "github.com/cenkalti/backoff/v4"

	"github.com/holdfast-go/holdfast"
)

// What the zero fields of a [Policy] stand for.
const (
	DefaultInitial    = 10 * time.Millisecond
	DefaultMax        = time.Second
	DefaultMultiplier = 2.0
)

// minInitial is the smallest Initial. Intervals are whole nanoseconds: a
// smaller one could lose all its growth to rounding and make a loop that spins.
const minInitial = time.Microsecond

// Policy says how long to pause between the attempts of an operation, and how
// long one attempt may take. The zero value is ready to use. A Policy holds no
// state: it may be copied and used by any number of goroutines at once, as far
// as its functions may.
//
// Zero fields stand for their defaults; any other value outside its range is an
// error (see [Policy.Validate]), also where it only conflicts with a default.
type Policy struct {
	// Initial is the upper bound of the first pause. Default 10 ms, at least
	// 1 µs. Longer than the usual duration of an attempt, it only adds delay;
	// much shorter, the first repetitions come in a burst.
	Initial time.Duration

	// Max is the upper bound that no pause exceeds. Default 1 s, at least
	// Initial. It is about how late a recovery is noticed: half of it on
	// average.
	Max time.Duration

	// Multiplier is the growth of the upper bound from one pause to the next.
	// Default 2, at least 1 (no growth), finite.
	Multiplier float64

	// Attempt bounds each attempt: the context that an operation is given ends
	// after it. Default 0, no bound but the caller's context. etcd's client
	// blocks for as long as no endpoint can be reached, and notices a
	// half-open connection by timeouts only, so a loop that is to get past
	// such a state needs it.
	Attempt time.Duration

	// Rand draws evenly from [0, 1). Default math/rand/v2.Float64. It must be
	// safe for as many goroutines as use the policy. What it returns is cut to
	// that range; NaN counts as the upper end.
	Rand func() float64

	// Notify, if not nil, is called before each pause with the error of the
	// attempt that failed, on the goroutine that called [Retry]. Default nil.
	Notify func(err error, pause time.Duration)
}

// Validate returns a *holdfast.ArgumentError for the first field out of its range, or
// nil. [Policy.New] and [Retry] call it.
func (p Policy) Validate() error {
	p = p.withDefaults()
	switch {
	case p.Initial < minInitial:
		return invalid("Initial", "is %v; it must be %v or more", p.Initial, minInitial)
	case p.Max < p.Initial:
		return invalid("Max", "is %v; it must not be less than Initial, %v", p.Max, p.Initial)
	case math.IsNaN(p.Multiplier) || math.IsInf(p.Multiplier, 0) || p.Multiplier < 1:
		return invalid("Multiplier", "is %v; it must be a finite number of 1 or more", p.Multiplier)
	case p.Attempt < 0:
		return invalid("Attempt", "is %v; it must not be negative", p.Attempt)
	}
	return nil
}

func invalid(field, reason string, args ...any) error {
	return &holdfast.ArgumentError{Argument: "Policy." + field, Reason: fmt.Sprintf(reason, args...)}
}

func (p Policy) withDefaults() Policy {
	if p.Initial == 0 {
		p.Initial = DefaultInitial
	}
	if p.Max == 0 {
		p.Max = DefaultMax
	}
	if p.Multiplier == 0 {
		p.Multiplier = DefaultMultiplier
	}
	if p.Rand == nil {
		p.Rand = rand.Float64
	}
	return p
}

// New returns the pauses of one loop, starting with the first. The error is a
// *holdfast.ArgumentError.
func (p Policy) New() (*BackOff, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	p = p.withDefaults()
	return &BackOff{
		// cenkalti's own jitter cannot be full jitter: its factor f spreads
		// over [1-f, 1+f] times the interval, so that f = 1 means [0, 2×], and
		// it caps the interval before it spreads, so that Max is exceeded.
		// With factor 0 it is an exact generator of capped intervals, and the
		// draw is made here.
		bounds: cenkalti.NewExponentialBackOff(
			cenkalti.WithInitialInterval(p.Initial),
			cenkalti.WithMaxInterval(p.Max),
			cenkalti.WithMultiplier(p.Multiplier),
			cenkalti.WithRandomizationFactor(0),
			cenkalti.WithMaxElapsedTime(0),
		),
		rand: p.Rand,
	}, nil
}

// BackOff is the sequence of pauses of one loop. It satisfies the BackOff
// interface of github.com/cenkalti/backoff/v4, and never returns that package's
// Stop. It must not be used by two goroutines at once.
type BackOff struct {
	bounds *cenkalti.ExponentialBackOff
	rand   func() float64
}

var _ cenkalti.BackOff = (*BackOff)(nil)

// NextBackOff returns the next pause: call n, counted from 0, draws evenly from
// [0, min(Max, Initial·Multiplierⁿ)).
func (b *BackOff) NextBackOff() time.Duration {
	bound := b.bounds.NextBackOff()
	r := b.rand()
	switch {
	case r < 0:
		// A negative pause would be read as Stop.
		return 0
	case !(r < 1): // NaN too
		return bound
	}
	// A large bound can be rounded up on its way through float64.
	return min(bound, time.Duration(r*float64(bound)))
}

// Reset starts again with the first pause.
func (b *BackOff) Reset() { b.bounds.Reset() }
