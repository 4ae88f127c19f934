package backoff_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
)

func TestInvalidPolicyIsAnErrorNamingTheField(t *testing.T) {
	for _, c := range []struct {
		field string
		p     backoff.Policy
	}{
		{"Initial", backoff.Policy{Initial: -1}},
		{"Initial", backoff.Policy{Initial: 1}}, // a loop that spins
		{"Max", backoff.Policy{Max: -1}},
		{"Max", backoff.Policy{Initial: 2 * time.Second, Max: time.Second}},
		{"Max", backoff.Policy{Initial: 2 * time.Second}}, // above the default Max
	} {
		t.Run(fmt.Sprintf("%s/%+v", c.field, c.p), func(t *testing.T) {
			var pe *holdfast.ArgumentError
			if err := c.p.Validate(); !errors.As(err, &pe) || pe.Argument != "Policy."+c.field {
				t.Errorf("Validate: %v", err)
			}
			err := backoff.Retry(t.Context(), c.p, func(context.Context) error { t.Error("was called"); return nil })
			if !errors.As(err, &pe) {
				t.Errorf("Retry: %v", err)
			}
		})
	}
}
