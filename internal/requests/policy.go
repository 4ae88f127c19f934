package requests

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
)

// DefaultAttempt is the Attempt of a policy that has none. After maxAttempt a member may answer DeadlineExceeded: then
// etcd's client sends the write again, unnoticed if the client's KV was replaced.
const DefaultAttempt, maxAttempt = 4 * time.Second, 5 * time.Second

// Policy validates the retry policy that a user has given as the named option, and returns it with the default for
// Attempt. The error is a *holdfast.ArgumentError that names the field, such as "Options.Retry.Max".
func Policy(option string, p backoff.Policy) (backoff.Policy, error) {
	err := p.Validate()
	var bad *holdfast.ArgumentError
	switch {
	case errors.As(err, &bad):
		field := strings.TrimPrefix(bad.Argument, "Policy.")
		return p, &holdfast.ArgumentError{Argument: option + "." + field, Reason: bad.Reason}
	case p.Attempt >= maxAttempt:
		return p, &holdfast.ArgumentError{Argument: option + ".Attempt", Reason: fmt.Sprintf("is %v; "+
			"it must be less than %v, after which etcd's client may send a write twice", p.Attempt, maxAttempt)}
	case p.Attempt == 0:
		p.Attempt = DefaultAttempt
	}
	return p, nil
}
