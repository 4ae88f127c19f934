package locker

import (
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/queue"
)

var (
	// ErrLocked is the answer of TryLock and TryDo when the lock is held or
	// waited for: by another session, or by another goroutine of this one.
	ErrLocked = errors.New("the lock is held or waited for")

	// ErrUnconfirmed is the answer of TryLock and TryDo when no client holds the
	// lock, but an entry of this session still stands or may stand: of a Lock
	// that gave up, or of an Unlock that was not answered. The session is
	// removing it. Try again soon: it is gone at the latest when the lease ends.
	ErrUnconfirmed = queue.ErrUnconfirmed
)

// CheckName reports whether name can name a lock: nil or a *holdfast.NameError.
// Names are non-empty segments joined by "/", none starting with "@", at most
// 512 bytes, taken byte for byte. Check constants and configuration at boot;
// Lock says the same before it sends anything.
func CheckName(name string) error { return queue.CheckName("lock", name) }

// AcquireError says why a lock was not acquired. Nothing is held. As a rule
// nothing is left in etcd either. Only if etcd did not answer while the call gave
// up, an entry of the call may still stand or appear, and others wait behind it,
// until the session has removed it: within moments of etcd answering again, and
// at the latest when the lease ends.
type AcquireError struct {
	Name   string
	Lease  clientv3.LeaseID // the session's latest; 0 without a session
	State  holdfast.State   // the session's, at the end; 0 without a session
	Waited time.Duration
	// Err is the reason: the context's error together with what the last
	// attempt met, ErrLocked, ErrUnconfirmed, holdfast.ErrReentrant, holdfast.ErrClosed,
	// *holdfast.NameError, *holdfast.ArgumentError, or what etcd said.
	Err error
}

func (e *AcquireError) Error() string {
	if e.State == 0 {
		return fmt.Sprintf("lock %s not acquired: %v", names.Quote(e.Name), e.Err)
	}
	return fmt.Sprintf("lock %s not acquired after %s (lease %x, session %s): %v",
		names.Quote(e.Name), e.Waited.Round(time.Millisecond), int64(e.Lease), e.State, e.Err)
}

func (e *AcquireError) Unwrap() error { return e.Err }
