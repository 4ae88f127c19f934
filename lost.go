package holdfast

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// LostError: a lease, or a lock or term on it, is lost for good. It Is ErrLost, and with CauseClosed also
// ErrClosed.
type LostError struct {
	Kind  Kind             // empty for the session itself
	Name  string           // of the lock or election; empty for the session itself
	Lease clientv3.LeaseID // the lost lease
	Token Token            `json:",omitzero"` // the holder's fencing token; 0 for a reader and for the session itself
	Cause Cause            // why
	Since time.Duration    // from the last confirmed renewal to the loss
	Err   error            // the error of the last failed renewal, or a *KickError; may be nil
}

func (e *LostError) Error() string {
	var b strings.Builder
	if e.Kind == "" {
		b.WriteString("session lost")
	} else {
		fmt.Fprintf(&b, "%v %.128q lost", e.Kind, e.Name)
		if e.Token != 0 {
			fmt.Fprintf(&b, " (token %v)", e.Token)
		}
	}
	fmt.Fprintf(&b, ": lease %x: %s", int64(e.Lease), cmp.Or(causes[e.Cause].explained, e.Cause.String()))
	if e.Since > 0 {
		fmt.Fprintf(&b, "; last confirmed renewal %s before", e.Since.Round(time.Millisecond))
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	switch {
	case e.Cause == CauseKicked || e.Cause == CauseRemoved:
		b.WriteString("; stop its work, then release it")
	case e.Kind != "" && e.Kind != KindElection && e.Kind != KindShard && e.Cause != CauseClosed:
		b.WriteString("; stop its work and acquire again")
	}
	return b.String()
}

// Is reports whether target is ErrLost, or ErrClosed if the session was closed.
func (e *LostError) Is(target error) bool {
	return target == ErrLost || e.Cause == CauseClosed && target == ErrClosed
}

// Unwrap returns Err.
func (e *LostError) Unwrap() error { return e.Err }

// KickError says which administrator has ended a hold, and why. It is the Err of a LostError with CauseKicked or
// CauseRemoved: find it with errors.As. Its texts come from etcd: they have at most 256 bytes each, and Error escapes
// them.
type KickError struct {
	By     string    // as the administrator has named itself: admin.Options.Owner
	Reason string    // as given to Kick or Remove
	At     time.Time // by the administrator's clock
}

func (e *KickError) Error() string { return fmt.Sprintf("by %q: %q", e.By, e.Reason) }

// Cause is the reason for a loss.
type Cause int

const (
	// CauseExpired: no renewal was confirmed while the lease was trusted.
	CauseExpired Cause = iota + 1
	// CauseRevoked: the lease does not exist, though it was still trusted, or the lease of its claims does not. Etcd said
	// so; or its session key is gone, and within a quarter of the lock delay etcd did not say whether the lease exists.
	CauseRevoked
	// CauseEntryDeleted: the entry of the lock or term is gone from etcd. Usually it was deleted by hand. Or an
	// administrator removed it while this process was paused: "holdfast explain" and admin's own record say who. After
	// a refused write the lease may have been revoked instead: the session reports that next.
	CauseEntryDeleted
	// CauseClusterChanged: the endpoints now lead to another etcd cluster.
	CauseClusterChanged
	// CauseClosed: the session was closed by this program.
	CauseClosed
	// CauseMaxHold: the lock was held for longer than Options.MaxHold.
	CauseMaxHold
	// CauseNotDrained: a term's function did not return in time. It may still run.
	CauseNotDrained
	// CauseKeyDeleted: the session key was deleted, and etcd refused to put it again: a role lacks the permission, or
	// the store is full.
	CauseKeyDeleted
	// CauseClientClosed: the etcd client was closed before the session.
	CauseClientClosed
	// CauseKicked: an administrator asked the holder to let go. The name stays taken until the holder releases the
	// lock or resigns. Do and Run do so when their function has returned. LostError.Err is a *KickError.
	CauseKicked
	// CauseRemoved: an administrator is taking the lock away. The name is free when the holder releases the lock, and
	// without that a few seconds later. LostError.Err is a *KickError.
	CauseRemoved
)

// causes has what String says of each cause, and how a LostError tells it to an operator.
var causes = map[Cause]struct{ short, explained string }{
	CauseExpired: {"expired", "no renewal was confirmed in time (etcd unreachable, or this process was paused)"},
	CauseRevoked: {"revoked", "etcd no longer knows the lease " +
		"(revoked by hand, or by a deposed etcd leader; or etcd was restored)"},
	CauseEntryDeleted: {"entry deleted", "its entry is gone from etcd " +
		"(deleted by hand; or removed by an administrator, as \"holdfast explain\" tells; " +
		"or the lease was revoked, which the session will report next)"},
	CauseClusterChanged: {"cluster changed", "the endpoints lead to another etcd cluster now"},
	CauseClosed:         {"session closed", "its session was closed"},
	CauseMaxHold:        {"max hold exceeded", "it was held for longer than MaxHold"},
	CauseNotDrained: {"work not drained",
		"its work did not stop in time, so it was given up while the work still runs"},
	CauseKeyDeleted:   {"session key deleted", "its session key was deleted, and etcd refused to put it again"},
	CauseClientClosed: {"client closed", "its etcd client was closed: nothing can renew it"},
	CauseKicked:       {"kicked", "an administrator asked its holder to let go"},
	CauseRemoved:      {"removed", "an administrator is taking it away; the next holder follows in seconds"},
}

// String returns the cause as logs have it, such as "entry deleted".
func (c Cause) String() string {
	if told, known := causes[c]; known {
		return told.short
	}
	return fmt.Sprintf("Cause(%d)", int(c))
}
