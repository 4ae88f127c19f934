package backoff_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	cenkalti "github.com/cenkalti/backoff/v4"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
)

func constant(v float64) func() float64 { return func() float64 { return v } }

// halves makes every pause half of its bound: 500 ms, 1 s, 2 s, 2 s, …
var halves = backoff.Policy{Initial: time.Second, Max: 4 * time.Second, Rand: constant(0.5)}

func TestRetryPausesAsThePolicySays(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		start := time.Now()
		var calls []time.Duration
		err := backoff.Retry(t.Context(), halves, func(context.Context) error {
			if calls = append(calls, time.Since(start)); len(calls) < 6 {
				return rpctypes.ErrTimeout
			}
			return nil
		})
		want := []time.Duration{0, 500, 1500, 3500, 5500, 7500}
		for i := range want {
			want[i] *= time.Millisecond
		}
		if err != nil || !slices.Equal(calls, want) {
			t.Errorf("called at %v, want %v; %v", calls, want, err)
		}
	})
}

func TestRetryReturnsFinalErrorsAtOnce(t *testing.T) {
	boom := errors.New("boom")
	wrapped := fmt.Errorf("acquire: %w", retry.Final(boom))
	for name, c := range map[string]struct{ said, want error }{
		"permanent":           {rpctypes.ErrEmptyKey, rpctypes.ErrEmptyKey},
		"unauthorized":        {rpctypes.ErrPermissionDenied, rpctypes.ErrPermissionDenied},
		"lease gone":          {rpctypes.ErrLeaseNotFound, rpctypes.ErrLeaseNotFound},
		"no space":            {rpctypes.ErrNoSpace, rpctypes.ErrNoSpace},
		"outcome unknown":     {holdfast.ErrOutcomeUnknown, holdfast.ErrOutcomeUnknown},
		"not recognized":      {boom, boom},
		"marked":              {retry.Final(rpctypes.ErrTimeout), rpctypes.ErrTimeout},
		"marked by cenkalti":  {cenkalti.Permanent(boom), boom},
		"marked further down": {wrapped, wrapped}, // and not only what is below the mark
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			err := backoff.Retry(t.Context(), backoff.Policy{}, func(context.Context) error { calls++; return c.said })
			if calls != 1 || err != c.want {
				t.Errorf("%d calls, returned %#v, want %#v", calls, err, c.want)
			}
		})
	}
}

func TestRetryRepeatsWhatIsMarkedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		calls := 0
		err := backoff.Retry(t.Context(), backoff.Policy{}, func(context.Context) error {
			if calls++; calls < 4 {
				// The outermost mark counts, although cenkalti looks for its own mark anywhere.
				return retry.Again(fmt.Errorf("watch: %w", retry.Final(rpctypes.ErrCompacted)))
			}
			return nil
		})
		if err != nil || calls != 4 {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
}

func TestOpIsNotCalledOnDeadContext(t *testing.T) {
	cause := errors.New("lock lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	err := backoff.Retry(ctx, backoff.Policy{}, func(context.Context) error {
		t.Error("called")
		return nil
	})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
		t.Errorf("error is %v", err)
	}
}

func TestEndOfContextDuringPauseIsReportedWithTheLastError(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		start := time.Now()
		cause := errors.New("lock lost")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Second, cause) // in the pause from 1.5 s to 3.5 s
		defer cancel()
		calls := 0
		err := backoff.Retry(ctx, halves, func(context.Context) error {
			calls++
			return fmt.Errorf("attempt %d: %w", calls, rpctypes.ErrTimeout)
		})
		if d := time.Since(start); d != 2*time.Second || calls != 3 {
			t.Errorf("returned after %v and %d calls", d, calls)
		}
		for _, want := range []error{context.DeadlineExceeded, cause, rpctypes.ErrTimeout} {
			if !errors.Is(err, want) {
				t.Errorf("%q is not %q", err, want)
			}
		}
		const want = "context deadline exceeded: lock lost; attempts: 3; " +
			"last error: attempt 3: etcdserver: request timed out"
		if err.Error() != want {
			t.Errorf("got  %s\nwant %s", err, want)
		}
	})
}

// The error of an attempt that ctx cut short only says so; the error before it says why the operation failed.
func TestEndOfContextDuringAttemptKeepsTheErrorBefore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		calls := 0
		err := backoff.Retry(ctx, halves, func(ctx context.Context) error {
			if calls++; calls == 1 {
				return rpctypes.ErrStopped
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if calls != 2 || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, rpctypes.ErrStopped) {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
}

func TestDefiniteAnswerIsKeptAlthoughContextEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := backoff.Retry(ctx, backoff.Policy{}, func(context.Context) error {
		cancel()
		return rpctypes.ErrPermissionDenied
	})
	if err != rpctypes.ErrPermissionDenied {
		t.Errorf("%v: joining the context's error would make the outcome unknown", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	if err := backoff.Retry(ctx, backoff.Policy{}, func(context.Context) error { cancel(); return nil }); err != nil {
		t.Errorf("success was reported as %v", err)
	}
}

func TestUnrecognizedErrorAfterTheEndOfTheContextIsNotFinal(t *testing.T) {
	boom := errors.New("boom")
	ctx, cancel := context.WithCancel(t.Context())
	err := backoff.Retry(ctx, backoff.Policy{}, func(context.Context) error { cancel(); return boom })
	if !errors.Is(err, context.Canceled) || !errors.Is(err, boom) {
		t.Errorf("error is %v", err)
	}
}

// When a pause and ctx end together, either may be noticed first. op must not be called on the dead context.
func TestPauseThatEndsWithContextDoesNotCallAgain(t *testing.T) {
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		p := backoff.Policy{
			Rand: func() float64 { cancel(); return 0 }, // a pause that is over before it is waited for
		}
		err := backoff.Retry(ctx, p, func(context.Context) error { calls++; return rpctypes.ErrTimeout })
		if calls != 1 || !errors.Is(err, context.Canceled) || !errors.Is(err, rpctypes.ErrTimeout) {
			t.Fatalf("%d calls, %v", calls, err)
		}
	}
}

func TestRetryRefusesAnInvalidPolicy(t *testing.T) {
	var pe *holdfast.ArgumentError
	err := backoff.Retry(t.Context(), backoff.Policy{Initial: -1}, func(context.Context) error {
		t.Error("called")
		return nil
	})
	if !errors.As(err, &pe) || pe.Argument != "Policy.Initial" {
		t.Errorf("error is %v", err)
	}
}

func TestPanicOfOpGoesThrough(t *testing.T) {
	defer func() {
		if r := recover(); r != "boom" {
			t.Errorf("recovered %v", r)
		}
	}()
	_ = backoff.Retry(t.Context(), backoff.Policy{}, func(context.Context) error { panic("boom") })
}

// Retry inside Retry: the outer one may retry when the context of the inner one has ended.
func TestRetryNests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rounds := 0
		err := backoff.Retry(t.Context(), halves, func(ctx context.Context) error {
			if rounds++; rounds == 3 {
				return nil
			}
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			return backoff.Retry(ctx, halves, func(context.Context) error { return rpctypes.ErrTimeout })
		})
		if err != nil || rounds != 3 {
			t.Errorf("%d rounds, %v", rounds, err)
		}
	})
}
