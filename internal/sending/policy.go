package sending

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
)

const (
	// DefaultAttempt bounds a single request where the policy does not. On a
	// half-open connection nothing is answered, and gRPC alone takes minutes to
	// notice.
	DefaultAttempt = 4 * time.Second

	// maxAttempt: a member that is given that long may answer DeadlineExceeded
	// while the request's context is alive. etcd's client then sends the request,
	// a write too, again.
	maxAttempt = 5 * time.Second
)

// Policy validates the retry policy that a user has given as the named option,
// and returns it with the default for Attempt. The error is a
// *holdfast.ArgumentError that names the field, such as "Options.Retry.Max".
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
