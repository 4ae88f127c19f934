package locker

import (
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/view"
)

var (
	// ErrLocked is returned by TryLock and TryDo if the lock is held or waited for, by
	// another session or by another goroutine of this one.
	ErrLocked = errors.New("the lock is held or waited for")

	// ErrUnconfirmed is returned by TryLock and TryDo if no client holds the lock or waits
	// for it, but an entry of this session may still exist: of a Lock call that gave up, or
	// of an Unlock that was not answered. The session is removing it, so try again; at the
	// latest it goes with the lease.
	ErrUnconfirmed = queue.ErrUnconfirmed
)

// CheckName returns nil if name can name a lock, or a *holdfast.NameError. A name has at
// most 512 bytes and consists of non-empty segments joined by "/", none of which starts with
// "@". Lock returns the same error, before it sends anything; CheckName is for checking
// configuration at startup.
func CheckName(name string) error { return queue.CheckName("lock", name) }

// AcquireError says why a lock was not acquired. Nothing is held, and nothing is left in
// etcd, with one exception: if etcd did not answer while the call gave up, its entry may
// still exist or appear, and others wait behind it. The session removes it once etcd
// answers; at the latest it goes with the lease.
//
//	var failed *locker.AcquireError
//	if errors.As(err, &failed) && failed.Place.Known() {
//		log.Print(failed.Place) // who holds, and how many are ahead
//	}
type AcquireError struct {
	Name   string
	Lease  clientv3.LeaseID // the session's latest; 0 without a session
	State  holdfast.State   // the session's when the call ended; 0 without a session
	Waited time.Duration

	// Place says who holds and how many are ahead, with ErrLocked and with ctx's error. It
	// costs no request: it comes with the answer that refuses, or with that to the removal
	// of the call's own entry. If etcd does not answer, it is what was known last. It is
	// zero if nothing was known, or if nothing was ahead.
	Place view.Place

	// Err is the reason: ctx's error with that of the last attempt, ErrLocked,
	// ErrUnconfirmed, holdfast.ErrReentrant, holdfast.ErrClosed, a *holdfast.NameError, a
	// *holdfast.ArgumentError, or an error of etcd.
	Err error
}

func (e *AcquireError) Error() string {
	if e.State == 0 {
		return fmt.Sprintf("lock %s not acquired: %v", names.Quote(e.Name), e.Err)
	}
	text := fmt.Sprintf("lock %s not acquired after %s (lease %x, session %s): %v",
		names.Quote(e.Name), e.Waited.Round(time.Millisecond), int64(e.Lease), e.State, e.Err)
	if e.Place.Known() {
		text += "; " + e.Place.String()
	}
	return text
}

func (e *AcquireError) Unwrap() error { return e.Err }
