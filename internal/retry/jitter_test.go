package retry_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	cenkalti "github.com/cenkalti/backoff/v4"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// seeded draws the same numbers in every run.
func seeded(seed uint64) func() float64 { return rand.New(rand.NewPCG(seed, 0)).Float64 }

func constant(v float64) func() float64 { return func() float64 { return v } }

// bound is the specification: min(Max, Initial·2ⁿ).
func bound(p backoff.Policy, n int) float64 {
	return math.Min(float64(p.Max), float64(p.Initial)*math.Pow(2, float64(n)))
}

func pauses(t *testing.T, p backoff.Policy) *retry.Pauses {
	t.Helper()
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return retry.NewPauses(p.Initial, p.Max, p.Rand)
}

func randomPolicies(n int) []backoff.Policy {
	r := rand.New(rand.NewPCG(1, 2))
	var ps []backoff.Policy
	for range n {
		initial := time.Millisecond + time.Duration(r.Int64N(int64(10*time.Second)))
		ps = append(ps, backoff.Policy{
			Initial: initial,
			Max:     initial + time.Duration(r.Int64N(int64(initial)*int64(1+r.IntN(1000)))),
		})
	}
	return append(ps,
		backoff.Policy{Initial: time.Microsecond, Max: math.MaxInt64},
		backoff.Policy{Initial: math.MaxInt64, Max: math.MaxInt64},
		backoff.Policy{Initial: time.Second, Max: time.Second},
	)
}

func TestPauseNeverExceedsItsBound(t *testing.T) {
	for i, p := range randomPolicies(200) {
		p.Rand = seeded(uint64(i))
		b := pauses(t, p)
		for range 3 {
			for n := range 40 {
				if d := b.NextBackOff(); d < 0 || float64(d) > bound(p, n) {
					t.Fatalf("%+v: pause %d is %v, bound %v", p, n, d, time.Duration(bound(p, n)))
				}
			}
			b.Reset()
		}
	}
}

// The bound itself is reached: a draw just below 1 returns it, apart from rounding.
func TestBoundGrowsExponentiallyUpToMax(t *testing.T) {
	for _, p := range randomPolicies(200) {
		if p.Initial < time.Millisecond {
			continue // rounding to nanoseconds shows
		}
		p.Rand = constant(math.Nextafter(1, 0))
		b := pauses(t, p)
		for n := range 40 {
			d := b.NextBackOff()
			if diff := math.Abs(float64(d) - bound(p, n)); diff > 1e-4*bound(p, n) {
				t.Fatalf("%+v: pause %d is %v, want %v", p, n, d, time.Duration(bound(p, n)))
			}
		}
	}
}

// Each pause is uniform over its whole interval. Two tests, at a significance of 0.1 % each: the largest distance
// between the distributions (Kolmogorov-Smirnov), and chi-square over 20 bins, which also detects an excess at one
// end. The generator is seeded, so they always pass or always fail.
func TestPausesAreEvenlyDistributed(t *testing.T) {
	const (
		samples = 10_000
		bins    = 20
		ksLimit = 1.95  // times 1/√samples
		chi2    = 43.82 // 19 degrees of freedom
	)
	p := backoff.Policy{Initial: 10 * time.Millisecond, Max: time.Second, Rand: seeded(7)}
	b := pauses(t, p)
	draws := make([][]float64, 10)
	for range samples {
		b.Reset()
		for n := range draws {
			draws[n] = append(draws[n], float64(b.NextBackOff())/bound(p, n))
		}
	}
	for n, u := range draws {
		slices.Sort(u)
		var distance, chi float64
		var count [bins]float64
		for i, x := range u {
			distance = max(distance, math.Abs(x-float64(i)/samples), math.Abs(x-float64(i+1)/samples))
			if x < 0 || x >= 1 {
				t.Fatalf("pause %d: %v of its bound", n, x)
			}
			count[int(x*bins)]++
		}
		for _, c := range count {
			chi += (c - samples/bins) * (c - samples/bins) / (samples / bins)
		}
		if limit := ksLimit / math.Sqrt(samples); distance > limit {
			t.Errorf("pause %d: distance %.4f from even, limit %.4f", n, distance, limit)
		}
		if chi > chi2 {
			t.Errorf("pause %d: chi-square %.1f, limit %.1f", n, chi, chi2)
		}
	}
}

// The pauses of one sequence must be independent. Otherwise clients that failed together would stay together.
func TestPausesAreIndependent(t *testing.T) {
	b := pauses(t, backoff.Policy{Initial: time.Second, Max: time.Second, Rand: seeded(11)})
	const samples = 10_000
	var sum, sumSquares, sumProducts float64
	previous := 0.5
	for range samples {
		x := b.NextBackOff().Seconds() - 0.5
		sum, sumSquares, sumProducts = sum+x, sumSquares+x*x, sumProducts+x*previous
		previous = x
	}
	if r := sumProducts / sumSquares; math.Abs(r) > 4/math.Sqrt(samples) {
		t.Errorf("correlation of neighbors is %.4f", r)
	}
	if mean := sum / samples; math.Abs(mean) > 4*0.2887/math.Sqrt(samples) {
		t.Errorf("mean is %.4f s from half of the bound", mean)
	}
}

func TestPausesOfAZeroPolicyHaveTheDocumentedDefaults(t *testing.T) {
	b := pauses(t, backoff.Policy{Rand: constant(math.Nextafter(1, 0))})
	want := []time.Duration{10, 20, 40, 80, 160, 320, 640, 1000, 1000}
	for n, ms := range want {
		if d := b.NextBackOff().Round(time.Microsecond); d != ms*time.Millisecond {
			t.Errorf("bound of pause %d is %v, want %v", n, d, ms*time.Millisecond)
		}
	}
}

func TestResetStartsAgainWithTheFirstPause(t *testing.T) {
	b := pauses(t, backoff.Policy{Initial: time.Second, Max: time.Hour, Rand: constant(0.5)})
	first := b.NextBackOff()
	for range 5 {
		b.NextBackOff()
	}
	b.Reset()
	if again := b.NextBackOff(); again != first {
		t.Errorf("after Reset %v, at first %v", again, first)
	}
}

// A generator that leaves [0, 1) must not cause a negative pause, which would mean "stop", or one above the bound.
func TestDrawsOutsideTheRangeAreClamped(t *testing.T) {
	for draw, want := range map[float64]time.Duration{
		-1e-9: 0, -5: 0, math.Inf(-1): 0, 1: time.Second, 7: time.Second, math.Inf(1): time.Second,
	} {
		b := pauses(t, backoff.Policy{Initial: time.Second, Max: time.Second, Rand: constant(draw)})
		if d := b.NextBackOff(); d != want {
			t.Errorf("draw %v: pause %v, want %v", draw, d, want)
		}
	}
	b := pauses(t, backoff.Policy{Initial: time.Second, Max: time.Second, Rand: constant(math.NaN())})
	if d := b.NextBackOff(); d != time.Second {
		t.Errorf("draw NaN: pause %v", d)
	}
}

// They work wherever cenkalti's interface is expected, also wrapped in a limit of attempts.
func TestPausesWorkWithCenkaltisRetry(t *testing.T) {
	b := pauses(t, backoff.Policy{Initial: time.Microsecond, Max: time.Microsecond})
	calls := 0
	err := cenkalti.Retry(func() error { calls++; return errors.New("no") }, cenkalti.WithMaxRetries(b, 4))
	if err == nil || calls != 5 {
		t.Errorf("%d calls, %v", calls, err)
	}
}
