package backoff

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Defaults for the zero fields of a [Policy].
const (
	DefaultInitial = 10 * time.Millisecond
	DefaultMax     = time.Second
)

// minInitial is the smallest Initial. With a smaller one the loop would spin.
const minInitial = time.Microsecond

// Policy says how long to pause between attempts, and how long one may take. It may be copied, and used by any number
// of goroutines if its functions allow that. A zero field is its default; a value outside its range is an error, also
// if it only conflicts with another field's default.
type Policy struct {
	// Initial is the upper bound of the first pause; each next bound is twice as large. Default 10 ms, at least 1 µs.
	// Larger than an attempt usually takes, it only adds delay; much smaller, the first retries come in a burst.
	Initial time.Duration

	// Max is the upper bound of all pauses. Default 1 s, at least Initial. On average a recovery is noticed half of Max
	// late.
	Max time.Duration

	// Attempt is the timeout of each attempt's context. Default 0: none. etcd's client blocks while no endpoint can be
	// reached, and notices a half-open connection only by timeouts.
	Attempt time.Duration

	// Rand draws evenly from [0, 1). Default math/rand/v2.Float64. It must be safe for all goroutines that use the
	// policy. Results outside the range are clamped; NaN counts as the upper end.
	Rand func() float64
}

// Validate returns a *holdfast.ArgumentError for the first field outside its range, or nil. Retry calls it.
func (p Policy) Validate() error {
	p = p.withDefaults()
	switch {
	case p.Initial < minInitial:
		return invalid("Initial", "is %v; it must be %v or more", p.Initial, minInitial)
	case p.Max < p.Initial:
		return invalid("Max", "is %v; it must not be less than Initial, %v", p.Max, p.Initial)
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
	return p
}
