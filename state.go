package holdfast

import "fmt"

// State is what a session knows about its lease.
type State int

const (
	// Connected: renewals are confirmed in time.
	Connected State = iota + 1
	// Suspended: renewals are overdue. The lease is probably alive, but that cannot be proved.
	Suspended
	// Lost: the lease is gone, or must be presumed gone.
	Lost
	// Closed: the session was closed.
	Closed
)

// String returns the state as logs have it, such as "connected".
func (s State) String() string {
	if s < Connected || s > Closed {
		return fmt.Sprintf("State(%d)", int(s))
	}
	return [...]string{Connected: "connected", Suspended: "suspended", Lost: "lost", Closed: "closed"}[s]
}
