package session

import (
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
)

// The sentinels that every handle of this module shares. Decide on them with
// errors.Is; the types below carry what a person wants to read.
var (
	// ErrSuspended says: you may still hold, but cannot prove it now. Stop
	// side effects and ask again; it ends in nil or in a *LostError.
	ErrSuspended error = suspended{}

	// ErrClosed is returned for everything asked of a session after Close.
	ErrClosed = errors.New("session is closed")

	// ErrClientClosed says that the etcd client was closed under the session. It is
	// final: no lease follows.
	ErrClientClosed = errors.New("the etcd client was closed: close sessions before their client, and go on with a new client and session")

	// ErrReleased is the cause of a handle's contexts after Unlock or Resign.
	ErrReleased = errors.New("released by its holder")

	// ErrOutcomeUnknown says that a request was sent and not answered: it may
	// have been carried out, and may yet be.
	ErrOutcomeUnknown = backoff.ErrOutcomeUnknown

	// ErrReentrant is returned when a context that already carries a live hold
	// of a lock asks for the same lock again, which could only wait for itself.
	ErrReentrant = errors.New("this context already holds that lock")

	// ErrLost matches every *LostError.
	ErrLost = errors.New("lost")
)

// suspended is a type rather than an errors.New so that packages which must
// not import this one can tell "not now" from "never again" by Temporary.
type suspended struct{}

func (suspended) Error() string {
	return "session is suspended: renewals are not being confirmed; stop side effects until it is connected again or lost"
}

// Temporary reports true: the condition ends in Connected or in Lost.
func (suspended) Temporary() bool { return true }

// Cause is the reason why something was lost.
type Cause int

const (
	// CauseExpired: no renewal was confirmed before trusted-until.
	CauseExpired Cause = iota + 1
	// CauseRevoked: the server says that the lease does not exist.
	CauseRevoked
	// CauseEntryDeleted: the entry is gone from etcd, and the session knows of
	// no loss of its lease: as a rule the entry was deleted by hand. If a refused
	// write told of it, the lease may have been revoked; the session finds out next.
	CauseEntryDeleted
	// CauseClusterChanged: the endpoints now lead to another etcd cluster.
	CauseClusterChanged
	// CauseClosed: the session was closed by its owner.
	CauseClosed
	// CauseMaxHold: the handle was held for longer than its MaxHold allows.
	CauseMaxHold
	// CauseNotDrained: the work under it did not stop when it had to, and the
	// entry was given up without it.
	CauseNotDrained
	// CauseKeyDeleted: the session key was deleted, as by a revocation, and etcd
	// did not let it be put again within a quarter of LockDelay.
	CauseKeyDeleted
	// CauseClientClosed: the etcd client was closed under the session.
	CauseClientClosed
)

func (c Cause) String() string {
	switch c {
	case CauseExpired:
		return "expired"
	case CauseRevoked:
		return "revoked"
	case CauseEntryDeleted:
		return "entry deleted"
	case CauseClusterChanged:
		return "cluster changed"
	case CauseClosed:
		return "session closed"
	case CauseMaxHold:
		return "max hold exceeded"
	case CauseNotDrained:
		return "work not drained"
	case CauseKeyDeleted:
		return "session key deleted"
	case CauseClientClosed:
		return "client closed"
	default:
		return fmt.Sprintf("Cause(%d)", int(c))
	}
}

// explain is the half sentence an operator reads at night.
func (c Cause) explain() string {
	switch c {
	case CauseExpired:
		return "no renewal was confirmed in time (etcd unreachable, or this process was paused)"
	case CauseRevoked:
		return "etcd no longer knows the lease (it was revoked, by hand or by a former etcd leader that was stopped and went on; or etcd was restored)"
	case CauseEntryDeleted:
		return "its entry is gone from etcd (deleted by another client; or the lease was revoked, which the session will report next)"
	case CauseClusterChanged:
		return "the endpoints lead to another etcd cluster now"
	case CauseClosed:
		return "its session was closed"
	case CauseMaxHold:
		return "it was held for longer than MaxHold"
	case CauseNotDrained:
		return "its work did not stop in time, so it was given up while that still runs"
	case CauseKeyDeleted:
		return "its session key was deleted, perhaps with the lease, and could not be put again"
	case CauseClientClosed:
		return "nothing can renew it any more"
	default:
		return c.String()
	}
}

// LostError says that a lease, or a lock or term on it, is gone for good.
// It never turns back: acquire again to go on.
//
// errors.Is(err, ErrLost) is true for each of them; for CauseClosed
// errors.Is(err, ErrClosed) is true as well.
type LostError struct {
	Kind  string           // "lock", "election"; empty for the session itself
	Name  string           // the lock's or election's name; empty for the session itself
	Lease clientv3.LeaseID // the lease that is gone
	Token int64            // the holder's fencing token; 0 for the session itself
	Cause Cause            // why
	Since time.Duration    // time from the last confirmed renewal to the loss
	Err   error            // what the last failed renewal said; may be nil
}

func (e *LostError) Error() string {
	var b strings.Builder
	if e.Kind == "" {
		b.WriteString("session lost")
	} else {
		fmt.Fprintf(&b, "%s %s lost (token %d)", e.Kind, Quote(e.Name), e.Token)
	}
	fmt.Fprintf(&b, ": lease %x: %s", int64(e.Lease), e.Cause.explain())
	if e.Since > 0 {
		fmt.Fprintf(&b, "; last confirmed renewal %s before", e.Since.Round(time.Millisecond))
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Cause != CauseClosed {
		b.WriteString("; stop its work and acquire again")
	}
	return b.String()
}

// Is makes errors.Is(err, ErrLost) true.
func (e *LostError) Is(target error) bool {
	return target == ErrLost || e.Cause == CauseClosed && target == ErrClosed
}

// Temporary reports false: what Err says of a network must not make a loss look
// like a suspension to those who tell the two apart by this method.
func (e *LostError) Temporary() bool { return false }

// Unwrap returns what the last failed renewal said.
func (e *LostError) Unwrap() error { return e.Err }

// Of returns a copy of e that names the handle which was lost with the lease.
func (e *LostError) Of(kind, name string, token int64) *LostError {
	named := *e
	named.Kind, named.Name, named.Token = kind, name, token
	return &named
}

// CallbackError says which callbacks had not returned when Close stopped waiting
// for them. All else is closed. A callback that calls Close gets one that names
// itself.
type CallbackError struct {
	Callbacks []string      // each by its name and place in the source
	Waited    time.Duration // at most: Options.CloseTimeout
}

func (e *CallbackError) Error() string {
	return fmt.Sprintf("callback still running (Close waits %v for it; see Options.CloseTimeout): %s", e.Waited, strings.Join(e.Callbacks, ", "))
}

// NameError says why a name cannot be used. Nothing was sent.
type NameError struct {
	Kind   string // "lock", "election", "namespace", "prefix"
	Name   string
	Reason string
}

func (e *NameError) Error() string {
	return fmt.Sprintf("%s name %s: %s", e.Kind, Quote(e.Name), e.Reason)
}

// ArgumentError says which argument or option cannot be used. Nothing was sent.
type ArgumentError struct {
	Argument string // as in the signature or the options struct: "ctx", "Options.TTL"
	Reason   string
}

func (e *ArgumentError) Error() string { return e.Argument + ": " + e.Reason }

// Quote renders a name for a message: escaped, and cut where it would drown
// the rest of the line.
func Quote(name string) string {
	const most = 128
	if len(name) > most {
		return fmt.Sprintf("%q… (%d bytes)", name[:most], len(name))
	}
	return fmt.Sprintf("%q", name)
}
