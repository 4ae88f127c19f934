package locker

import (
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/view"
)

// Options are the options of all locks. The zero value of each field is its default. A value out of range, or
// not for this kind of lock, is a *holdfast.ArgumentError from Lock.
type Options struct {
	// Owner names the holder in the entry, for people. Default session.Options.Owner; at most 256 bytes. Two
	// goroutines with the same Owner exclude each other.
	Owner string

	// MaxHold is how long a hold may last: then the Lock is lost with holdfast.CauseMaxHold, and its entry is removed.
	// Default 0: no limit.
	MaxHold time.Duration

	// MinHold keeps the name of a Mutex taken until that long after the grant, also after Unlock and after Session.Close:
	// no other client can hold it before. Then TryDo runs a job at most once per interval in any number of processes;
	// see docs/cron.md. An error or a panic of the work changes nothing. Only a loss, an administrator or Detach ends it
	// early, so a crash may give one more run.
	//
	// It costs Unlock one more request. The name is taken for some 3 s longer, after a change of etcd's leader for up to
	// twice as long. Default 0. At most MaxHold, if that is set, and 31 days.
	MinHold time.Duration

	// Reentrant lets functions lock a name and call others that lock it, too. With a context of a Lock of the same name
	// and client, while it is held, Lock, TryLock, Do and TryDo of a Mutex or RWMutex then return at once, without a
	// request, and without holdfast.ErrReentrant: another Lock of the same hold, with its token. Both calls need it.
	//
	// Each Lock ends with its own Unlock, or with the hold; the last Unlock removes the entry. So the name stays taken
	// while a goroutine is within a Do of its own, even if it outlives the outer Do. Goroutines with contexts of the same
	// hold do not exclude each other. Each call has its own CancelOnSuspended; the first call's other options count.
	Reentrant bool

	// CancelOnSuspended cancels the contexts of the lock, of Do and of WithContext, already when the session is
	// suspended, with cause holdfast.ErrSuspended. By default work continues through a short outage of
	// etcd, while fenced writers refuse.
	CancelOnSuspended bool

	// OnWait is called while Lock and Do wait: once they are queued behind others, and each time the wait continues,
	// at least every 30 s; of a lock delay once. A goroutine behind others of its session is told when it queues, and
	// when it is the first of them. Each call is preceded by a read of the place, one request.
	//
	//	OnWait: func(p view.Place) { log.Printf("waiting for the lock: %v", p) },
	//
	// For each acquisition the calls are made one at a time, in order; of several due calls only the last is made.
	// A slow call delays nothing, and a panic is logged. No call begins after Lock has returned; Close waits for a
	// call. Default nil.
	OnWait func(view.Place)

	// OnOverrun is called when a function of Do has not returned in time after its lock was lost. Default nil.
	OnOverrun holdfast.OverrunFunc

	// Auditor is told of each grant, release and loss. A grant waits for it, and Session.Close for CloseTimeout.
	// Default: the session's Logger, as audit.Log: losses at Warn, unless Session.Close ends the hold.
	Auditor audit.Auditor
}
