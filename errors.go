package holdfast

import (
	"errors"
	"fmt"
)

// The sentinel errors of all packages. Test for them with errors.Is.
var (
	// ErrLost matches every *[LostError].
	ErrLost = errors.New("lost")

	// ErrSuspended means that renewals are overdue: the lock or term is probably still held, but that cannot be proved
	// now. Stop side effects and check again.
	ErrSuspended = errors.New("session is suspended: renewals are not being confirmed; " +
		"stop side effects until it is connected again or lost")

	// ErrReleased is the cause of a handle's contexts after Unlock or Resign.
	ErrReleased = errors.New("released by its holder")

	// ErrClosed is returned by every call on a session that was closed.
	ErrClosed = errors.New("session is closed")

	// ErrClientClosed means that the etcd client was closed before the session. It is final.
	ErrClientClosed = errors.New("the etcd client was closed: close sessions before their client, " +
		"and go on with a new client and session")

	// ErrOutcomeUnknown means that a write was sent and not answered: it may have been carried out, or may be later.
	// The cause is joined to it.
	ErrOutcomeUnknown = errors.New("outcome unknown: the request was sent and may or may not take effect")

	// ErrNoToken means that a holder is nil, or its token zero or negative.
	ErrNoToken = errors.New("no fencing token")

	// ErrReentrant means that the context already carries a hold of the same lock: the call would wait for itself.
	ErrReentrant = errors.New("this context already holds that lock")
)

// ArgumentError says which argument or option is invalid. Nothing was sent.
type ArgumentError struct {
	Argument string // as in the signature or the options struct: "ctx", "Options.TTL"
	Reason   string // such as "is nil"
}

func (e *ArgumentError) Error() string { return e.Argument + " " + e.Reason }

// NameError says why a name is invalid. Nothing was sent.
type NameError struct {
	Kind   string // of what it is the name: "lock", "election", "namespace", "resource"
	Name   string
	Reason string // such as "is empty"
}

func (e *NameError) Error() string {
	return fmt.Sprintf("%s name %.128q: %s", e.Kind, e.Name, e.Reason)
}

// LimitError says that a semaphore has another limit in etcd than the program names, or that a weight is above the
// limit, so that it could never be acquired. Nothing is held.
type LimitError struct {
	Name   string // of the semaphore
	Limit  int    // in etcd; if nothing was asked of etcd yet, the one that the program names
	Named  int    // by the program
	Weight int    // what was asked for, if that is above the limit; otherwise 0
}

func (e *LimitError) Error() string {
	if e.Weight > 0 {
		return fmt.Sprintf("semaphore %.128q: a weight of %d is above the limit of %d, so it could never be acquired",
			e.Name, e.Weight, e.Limit)
	}
	return fmt.Sprintf("semaphore %.128q has a limit of %d in etcd, and this program names %d: all programs must name "+
		"the same limit, which Resize changes", e.Name, e.Limit, e.Named)
}
