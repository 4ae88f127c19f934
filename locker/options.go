package locker

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/session"
)

// maxOwner bounds Options.Owner in bytes: it stands in every entry.
const maxOwner = 256

// Options are policies of a Mutex. The zero value of every field is its
// default; a value that cannot be used is an *session.ArgumentError from Lock.
type Options struct {
	// Owner says who holds, in the entry's value, for people who look into
	// etcd. Default empty; at most 256 bytes. It is no identity: two
	// goroutines with the same Owner exclude each other.
	Owner string

	// MaxHold ends a hold that lasts longer: the handle is lost with cause
	// session.CauseMaxHold and the entry is released. Default 0: no limit.
	// It bounds how long a stuck holder keeps the others waiting.
	MaxHold time.Duration

	// CancelOnSuspended cancels the handle's contexts (Do's, and those from
	// Context) as soon as the session is suspended, with cause
	// session.ErrSuspended. By default they are cancelled when it is lost:
	// work goes on through a short outage of etcd, while fenced writers refuse.
	CancelOnSuspended bool

	// Auditor is told of each grant, release and loss. Default nil: the
	// session's Logger is, at Debug, and of losses at Warn. A grant waits for
	// it; a release and a loss do not, but Close does.
	Auditor fencing.Auditor
}

func (o Options) check() error {
	switch {
	case len(o.Owner) > maxOwner:
		return &session.ArgumentError{Argument: "Options.Owner", Reason: fmt.Sprintf("is longer than %d bytes", maxOwner)}
	case o.MaxHold < 0:
		return &session.ArgumentError{Argument: "Options.MaxHold", Reason: "is negative"}
	default:
		return nil
	}
}

// entryValue is what a holder's entry says of itself, for people.
type entryValue struct {
	Owner string    `json:"owner,omitempty"`
	Host  string    `json:"host,omitempty"`
	PID   int       `json:"pid"`
	Mode  string    `json:"mode"`
	Since time.Time `json:"since"`
}

var hostname = sync.OnceValue(func() string {
	name, _ := os.Hostname() // unknown is as good as empty here
	return name
})

func (o Options) value(mode string) string {
	b, err := json.Marshal(entryValue{
		Owner: o.Owner, Host: hostname(), PID: os.Getpid(), Mode: mode, Since: time.Now().UTC().Truncate(time.Millisecond),
	})
	if err != nil {
		return "" // cannot be: plain fields only; an empty value is an exclusive entry as well
	}
	return string(b)
}
