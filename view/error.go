package view

import (
	"cmp"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
)

// AcquireError says why a lock was not acquired, or why a campaign did not lead to a term. Nothing is held, and no
// entry is left. Only if etcd did not answer may the entry still appear, and block those behind it, until the session
// or the end of the lease removes it.
//
//	var failed *view.AcquireError
//	if errors.As(err, &failed) && failed.Place.Known() {
//		log.Print(failed.Place) // who holds, and how many are ahead
//	}
type AcquireError struct {
	Kind   holdfast.Kind
	Name   string           // of the lock or election; of a locker.Set, those of all its locks
	Lease  clientv3.LeaseID // the session's latest; 0 without a session
	State  holdfast.State   // the session's when the call ended; 0 without a session
	Waited time.Duration

	// Place says who holds and how many are ahead, with locker.ErrLocked and with ctx's error. It costs no request. If
	// etcd did not answer, it is what was known last. It is zero if nothing is known or nothing was ahead.
	Place Place

	// Err is one of:
	//   - ctx's error, joined with that of the last attempt; of Run and RunWhileLeader also with election.ErrNotDrained,
	//     if a function of an earlier term was still running;
	//   - locker.ErrLocked, holdfast.ErrReentrant or holdfast.ErrClosed;
	//   - a *holdfast.NameError, *holdfast.ArgumentError or *holdfast.LimitError;
	//   - a *holdfast.LostError (only under session.Options.StayLost);
	//   - etcd's error, where a retry cannot help.
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

// Unwrap returns Err.
func (e *AcquireError) Unwrap() error { return e.Err }
