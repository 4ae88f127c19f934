package requests_test

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/requests"
)

func TestPolicyHasNoAttemptAndErrorsNameTheOption(t *testing.T) {
	for _, c := range []struct {
		p   backoff.Policy
		bad string // the argument of the error
	}{
		{backoff.Policy{}, ""},
		{backoff.Policy{Attempt: 1}, ""},
		{backoff.Policy{Initial: -1}, "Options.Retry.Initial"},
	} {
		got, err := requests.Policy("Options.Retry", c.p)
		var bad *holdfast.ArgumentError
		if errors.As(err, &bad) != (c.bad != "") || bad != nil && bad.Argument != c.bad ||
			got.Attempt != 0 {
			t.Errorf("%+v: %+v, %v", c.p, got, err)
		}
	}
}
