package locker

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
)

// maxOwner bounds Options.Owner in bytes: it stands in every entry.
const maxOwner = 256

// Options are policies of a Mutex. The zero value of every field is its
// default; a value that cannot be used is an *holdfast.ArgumentError from Lock.
type Options struct {
	// Owner says who holds, in the entry's value, for people who look into
	// etcd. Default session.Options.Owner; at most 256 bytes. It is no identity: two
	// goroutines with the same Owner exclude each other.
	Owner string

	// MaxHold ends a hold that lasts longer: the handle is lost with cause
	// holdfast.CauseMaxHold and the entry is released. Default 0: no limit.
	// It bounds how long a stuck holder keeps the others waiting.
	MaxHold time.Duration

	// CancelOnSuspended cancels the handle's contexts (Do's, and those from
	// Context) as soon as the session is suspended, with cause
	// holdfast.ErrSuspended. By default they are cancelled when it is lost:
	// work goes on through a short outage of etcd, while fenced writers refuse.
	CancelOnSuspended bool

	// Auditor is told of each grant, release and loss. Default nil: the
	// session's Logger is, at Debug, and of losses at Warn. A grant waits for
	// it; a release and a loss do not, but Close does.
	Auditor audit.Auditor
}

func (o Options) check() error {
	switch {
	case len(o.Owner) > maxOwner:
		return &holdfast.ArgumentError{Argument: "Options.Owner", Reason: fmt.Sprintf("is longer than %d bytes", maxOwner)}
	case o.MaxHold < 0:
		return &holdfast.ArgumentError{Argument: "Options.MaxHold", Reason: "is negative"}
	default:
		return nil
	}
}
