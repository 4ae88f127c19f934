package locker

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/view"
)

// Options are the options of a Mutex. The zero value of each field is its default. A value
// out of range is a *holdfast.ArgumentError from Lock.
type Options struct {
	// Owner says who holds, for people who look into etcd: it is written in the entry's
	// value. Default session.Options.Owner; at most 256 bytes. It is not an identity: two
	// goroutines with the same Owner exclude each other.
	Owner string

	// MaxHold ends a hold that lasts longer: the Lock is lost with holdfast.CauseMaxHold,
	// and its entry is removed. It bounds how long a stuck holder blocks the others.
	// Default 0: no limit.
	MaxHold time.Duration

	// CancelOnSuspended cancels the contexts of the lock (that of Do, and those from
	// WithContext) as soon as the session is suspended, with cause holdfast.ErrSuspended.
	// By default they are canceled when the lock is lost: work goes on through a short
	// outage of etcd, and meanwhile fenced writers refuse to write.
	CancelOnSuspended bool

	// OnWait is called by Lock and Do while they wait: once when the call is queued behind
	// others, and each time the wait wakes and goes on. That is when the entry ahead has
	// left, every 30 s, and when a watch has failed. It costs no request; the reads that the
	// wait makes anyway ask for more. TryLock does not wait.
	//
	//	OnWait: func(p view.Place) { log.Printf("waiting for the lock: %v", p) },
	//
	// For each acquisition the calls are made one at a time, in order, on a goroutine of
	// their own. A slow one delays nothing: of the calls that come due meanwhile only the
	// last is made. A panic is recovered and logged. No call begins after Lock has returned;
	// one that is being made then goes on, and Close waits for it as for all callbacks. A
	// goroutine behind another one of its session is told when it joins the line, and again
	// when it is the first of them. Default nil.
	OnWait func(view.Place)

	// Auditor is told of each grant, release and loss. A grant waits for it; a release
	// and a loss do not, but Close does. Default nil: they are logged with the session's
	// Logger, grants and releases at Debug, losses at Warn.
	Auditor audit.Auditor
}

func (o Options) validate() error {
	switch {
	case len(o.Owner) > queue.MaxText:
		reason := fmt.Sprintf("is longer than %d bytes", queue.MaxText)
		return &holdfast.ArgumentError{Argument: "Options.Owner", Reason: reason}
	case o.MaxHold < 0:
		return &holdfast.ArgumentError{Argument: "Options.MaxHold", Reason: "is negative"}
	default:
		return nil
	}
}
