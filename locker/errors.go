package locker

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/view"
)

var (
	// ErrLocked is returned by TryLock and TryDo if another session or goroutine holds the lock or waits for it, or if
	// the removal of an earlier entry of this session was not answered yet; and by Semaphore.TryAcquire if fewer permits
	// are free than asked for, or another one waits.
	ErrLocked = errors.New("held or waited for")
)

// CheckName returns nil, or a *holdfast.NameError if name cannot name a lock. A name is one or more non-empty segments
// joined by "/", of any bytes, none starting with "@", at most 512 bytes in all. Lock checks too, before it sends
// anything.
func CheckName(name string) error { return names.Check(holdfast.KindLock, name) }

// AcquireError says why a lock was not acquired. Nothing is held, and no entry is left. Only if etcd did not answer may
// the entry still appear, and block those behind it, until the session or the end of the lease removes it.
//
//	var failed *locker.AcquireError
//	if errors.As(err, &failed) && failed.Place.Known() {
//		log.Print(failed.Place) // who holds, and how many are ahead
//	}
type AcquireError struct {
	Kind   holdfast.Kind // holdfast.KindLock, KindTree or KindSemaphore
	Name   string
	Lease  clientv3.LeaseID // the session's latest; 0 without a session
	State  holdfast.State   // the session's when the call ended; 0 without a session
	Waited time.Duration

	// Place says who holds and how many are ahead, with ErrLocked and with ctx's error. It costs no request. If etcd
	// did not answer, it is what was known last. It is zero if nothing is known or nothing was ahead.
	Place view.Place

	// Err is the reason: ctx's error with that of the last attempt, ErrLocked,
	// holdfast.ErrReentrant, holdfast.ErrClosed, a *holdfast.NameError, a
	// *holdfast.ArgumentError, a *holdfast.LimitError, or an error of etcd.
	Err error
}

func (e *AcquireError) Error() string {
	what := cmp.Or(e.Kind, holdfast.KindLock)
	if e.State == 0 {
		return fmt.Sprintf("%s %s not acquired: %v", what, names.Quote(e.Name), e.Err)
	}
	text := fmt.Sprintf("%s %s not acquired after %s (lease %x, session %s): %v",
		what, names.Quote(e.Name), e.Waited.Round(time.Millisecond), int64(e.Lease), e.State, e.Err)
	if e.Place.Known() {
		text += "; " + e.Place.String()
		if e.Lease != 0 && e.Place.Holder.Lease == e.Lease {
			text += "; this session is the holder, perhaps this goroutine"
		}
	}
	return text
}

func (e *AcquireError) Unwrap() error { return e.Err }
