package retry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/internal/retry"
)

func TestContextErrJoinsTheCauseOnce(t *testing.T) {
	cause := errors.New("lock lost")
	for name, c := range map[string]struct {
		cause error
		want  string
	}{
		"no cause":                     {nil, "context canceled"},
		"cause says more":              {cause, "context canceled: lock lost"},
		"cause wraps the context's":    {fmt.Errorf("lost: %w", context.Canceled), "lost: context canceled"},
		"cause is another context's":   {context.DeadlineExceeded, "context canceled: context deadline exceeded"},
		"cause is the context's error": {context.Canceled, "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			if err := retry.ContextErr(ctx); err != nil {
				t.Errorf("alive: %v", err)
			}
			cancel(c.cause)
			err := retry.ContextErr(ctx)
			if err == nil || err.Error() != c.want || !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if c.cause != nil && !errors.Is(err, c.cause) {
				t.Errorf("%v has lost its cause", err)
			}
		})
	}
}
