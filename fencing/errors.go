package fencing

import (
	"errors"
	"fmt"
)

// ErrNoToken is returned where a token is needed and there is none: a token of
// zero or less, a nil holder, a handle that is shared. Nothing was sent.
var ErrNoToken = errors.New("no fencing token")

// ErrStale is returned when the other side has refused a write because its
// token is not, or no longer, the current one: somebody else may hold the lock.
// The write had no effect. Whoever gets it must stop.
var ErrStale = errors.New("fencing token is stale")

// StaleError is the type behind [ErrStale]: errors.Is(err, ErrStale) is true for
// each of them.
type StaleError struct {
	Token    Token  // the token that was refused
	Resource string // what was to be written: the key in etcd, "" for a transaction
}

func (e *StaleError) Error() string {
	what := "transaction"
	if e.Resource != "" {
		what = fmt.Sprintf("write to %q", e.Resource)
	}
	return fmt.Sprintf("fencing: %s refused: token %v is stale: its holder's entry is gone", what, e.Token)
}

// Is makes errors.Is(err, ErrStale) true.
func (e *StaleError) Is(target error) bool { return target == ErrStale }
