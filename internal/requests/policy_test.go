package requests_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/requests"
)

func TestPolicyHasADefaultAttemptAndErrorsNameTheOption(t *testing.T) {
	for _, c := range []struct {
		p       backoff.Policy
		attempt time.Duration
		bad     string // the argument of the error
	}{
		{backoff.Policy{}, requests.DefaultAttempt, ""},
		{backoff.Policy{Attempt: time.Second}, time.Second, ""},
		{backoff.Policy{Attempt: 5 * time.Second}, 0, "Options.Retry.Attempt"},
		{backoff.Policy{Attempt: -1}, 0, "Options.Retry.Attempt"},
		{backoff.Policy{Initial: -1}, 0, "Options.Retry.Initial"},
	} {
		got, err := requests.Policy("Options.Retry", c.p)
		var bad *holdfast.ArgumentError
		if errors.As(err, &bad) != (c.bad != "") || bad != nil && bad.Argument != c.bad ||
			bad == nil && got.Attempt != c.attempt {
			t.Errorf("%+v: %+v, %v", c.p, got, err)
		}
	}
}
