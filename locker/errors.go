package locker

import (
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/session"
)

// ErrLocked is the answer of TryLock and TryDo when somebody else holds the
// lock or waits for it.
var ErrLocked = errors.New("locked by somebody else")

// CheckName reports whether name can name a lock: nil or a *session.NameError.
// Names are non-empty segments joined by "/", none starting with "@", at most
// 512 bytes, taken byte for byte. Check constants and configuration at boot;
// Lock says the same before it sends anything.
func CheckName(name string) error { return queue.CheckName("lock", name) }

// AcquireError says why a lock was not acquired. Nothing is held, and no entry
// is left or appears later: what was sent without an answer is being undone.
type AcquireError struct {
	Name   string
	Lease  clientv3.LeaseID // the session's latest; 0 without a session
	State  session.State    // the session's, at the end; 0 without a session
	Waited time.Duration
	// Err is the reason: the context's error together with what the last
	// attempt met, ErrLocked, session.ErrReentrant, session.ErrClosed,
	// *session.NameError, *session.ArgumentError, or what etcd said.
	Err error
}

func (e *AcquireError) Error() string {
	if e.State == 0 {
		return fmt.Sprintf("lock %s not acquired: %v", session.Quote(e.Name), e.Err)
	}
	return fmt.Sprintf("lock %s not acquired after %s (lease %x, session %s): %v",
		session.Quote(e.Name), e.Waited.Round(time.Millisecond), int64(e.Lease), e.State, e.Err)
}

func (e *AcquireError) Unwrap() error { return e.Err }
