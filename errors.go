package holdfast

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// The sentinel errors of all packages. Test for them with errors.Is.
var (
	// ErrLost matches every *[LostError].
	ErrLost = errors.New("lost")

	// ErrSuspended: renewals are overdue. The lock or term is probably still held, but nothing proves it now. Stop side
	// effects and check again.
	ErrSuspended = errors.New("session is suspended: renewals are not being confirmed; " +
		"stop side effects until it is connected again or lost")

	// ErrReleased is the cause of a handle's contexts after Unlock or Resign.
	ErrReleased = errors.New("released by its holder")

	// ErrClosed is returned by every call on a session that was closed.
	ErrClosed = errors.New("session is closed")

	// ErrClientClosed: the etcd client was closed before the session. It is final.
	ErrClientClosed = errors.New("the etcd client was closed: close sessions before their client, " +
		"and go on with a new client and session")

	// ErrOutcomeUnknown: a write was sent and not answered. It may have been carried out, or may be later.
	// The cause is joined to it.
	ErrOutcomeUnknown = errors.New("outcome unknown: the request was sent and may or may not take effect")

	// ErrNoToken: a holder is nil, or its token zero or negative.
	ErrNoToken = errors.New("no fencing token")

	// ErrReentrant: the context already carries a hold of the same lock. The call would wait for itself.
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

// TicketError: a ticket of a detached lock cannot be attached any more. Nothing is held.
type TicketError struct {
	End   TicketEnd
	Until time.Time // of the ticket
}

func (e *TicketError) Error() string {
	why := cmp.Or(ticketEnds[e.End], "it is good no more")
	return fmt.Sprintf("the ticket was good until %s: %s", e.Until.Format(time.RFC3339), why)
}

// TicketEnd is why a ticket is good no more.
type TicketEnd string

// The ends of tickets.
const (
	TicketUsed    TicketEnd = "used"
	TicketExpired TicketEnd = "expired"
	TicketKicked  TicketEnd = "kicked"
)

// ticketEnds says what an end means to an operator.
var ticketEnds = map[TicketEnd]string{
	TicketUsed: "it was used: a process has attached the lock since, or its entry was changed by hand; " +
		"\"holdfast explain\" tells which holds, or has released",
	TicketExpired: "it has expired, used or not: acquire the lock anew",
	TicketKicked: "it was ended before that: an administrator has kicked the detached hold, or revoked its lease, or " +
		"this session is of another cluster; acquire the lock anew",
}

// LimitError: a semaphore has another limit in etcd than in the program, or a weight is above the limit, and could
// never be acquired. Nothing is held.
type LimitError struct {
	Name   string // of the semaphore
	Limit  int    // in etcd; the program's, if etcd was not asked yet
	Named  int    // by the program
	Weight int    // the weight, if it is above the limit; otherwise 0
}

func (e *LimitError) Error() string {
	if e.Weight > 0 {
		return fmt.Sprintf("semaphore %.128q: a weight of %d is above the limit of %d, so it could never be acquired",
			e.Name, e.Weight, e.Limit)
	}
	return fmt.Sprintf("semaphore %.128q has a limit of %d in etcd, and this program names %d: all programs must name "+
		"the same limit, which Resize changes", e.Name, e.Limit, e.Named)
}
