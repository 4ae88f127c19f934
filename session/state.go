package session

import (
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// State is what a session can say of its lease.
type State int

const (
	// Connected: renewals are confirmed in time.
	Connected State = iota + 1
	// Suspended: the lease may still be held, but that cannot be proved.
	Suspended
	// Lost: the lease is gone, or must be presumed gone.
	Lost
	// Closed: closed by the caller.
	Closed
)

func (s State) String() string {
	switch s {
	case Connected:
		return "connected"
	case Suspended:
		return "suspended"
	case Lost:
		return "lost"
	case Closed:
		return "closed"
	default:
		return fmt.Sprintf("State(%d)", int(s))
	}
}

// metric is how open sessions are counted by state; a closed one is not.
func (s State) metric() string {
	if s == Closed {
		return ""
	}
	return s.String()
}

// Event is one change of a session's state.
type Event struct {
	State    State            // the state entered
	Previous State            // the state left
	Lease    clientv3.LeaseID // the lease it is about; after a loss, Connected brings a new one
	At       time.Time        // wall clock, for display
	Err      error            // Lost: the *LostError; Suspended: what the last renewal said, may be nil
}

// Reconnected reports whether the same lease came back from Suspended: nothing
// was lost.
func (e Event) Reconnected() bool { return e.State == Connected && e.Previous == Suspended }

// terminal events end a lease or the session; they are never dropped.
func (e Event) terminal() bool { return e.State == Lost || e.State == Closed }
