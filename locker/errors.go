package locker

import (
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
)

// ErrLocked is returned by TryLock and TryDo if another session or goroutine holds the lock or waits for it, or if
// the removal of an earlier entry of this session was not answered yet; and by Semaphore.TryAcquire if fewer permits
// are free than asked for, or another one waits.
var ErrLocked = errors.New("held or waited for")

// CheckName returns nil, or a *holdfast.NameError if name cannot name a lock. A name is one or more non-empty segments
// joined by "/", of any bytes, none starting with "@", at most 512 bytes in all. Lock checks too, before it sends
// anything.
func CheckName(name string) error { return names.Check(holdfast.KindLock, name) }
