package session

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
)

// Event is one change of a session's state.
type Event struct {
	State    holdfast.State   // the state entered
	Previous holdfast.State   // the state left
	Lease    clientv3.LeaseID // the lease it is about; after a loss, Connected has a new one
	At       time.Time        // wall clock, for display
	Err      error            // Lost: the *holdfast.LostError; Suspended: why the last renewal failed, may be nil
}

// Reconnected reports whether the same lease was confirmed again after a
// suspension: nothing was lost.
func (e Event) Reconnected() bool {
	return e.State == holdfast.Connected && e.Previous == holdfast.Suspended
}

// terminal reports whether the event ends a lease or the session. Such an event
// is never dropped.
func (e Event) terminal() bool { return e.State == holdfast.Lost || e.State == holdfast.Closed }

// stateLabel is the state under which an open session is counted; "" for a closed
// one, which is not counted.
func stateLabel(s holdfast.State) string {
	if s == holdfast.Closed {
		return ""
	}
	return s.String()
}
