package gocronlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

const (
	defaultPrefix  = "gocron/"
	defaultMinHold = 10 * time.Second
	defaultTimeout = 3 * time.Second
)

// ErrNotHeld is the error of a task made by Locker.Task that gocron has started without the lock: the job's name is not
// the task's, or its scheduler has another Locker, or none.
var ErrNotHeld = errors.New("the job runs without its lock")

// LockerOptions are the options of a Locker. The zero value of each field is its default.
type LockerOptions struct {
	// Timeout bounds the attempt to take a lock. Default 3 s. When etcd does not answer for longer, the run is skipped:
	// taken later, the lock might be that of a slot that another scheduler has run already.
	Timeout time.Duration

	// Prefix is put before a job's name to make the name of its lock. Default "gocron/".
	Prefix string

	// Lock has the options of the locks, such as MaxHold, which ends the lock of a job that hangs.
	//
	// MinHold is how long the lock of a run is taken at least, also after the run and after the scheduler has stopped.
	// Here its default is 10 s. It must be longer than Timeout plus the largest difference between the clocks of two
	// schedulers; and 5 s shorter than the interval of every job, since etcd ends it up to 3 s late, or the job's next
	// run finds the lock taken and is skipped.
	Lock locker.Options

	// Logger gets a warning for each run that was skipped for another reason than a held lock, which gocron itself
	// reports only to AfterLockError. Default slog.Default().
	Logger *slog.Logger
}

// Locker makes each run of a job take the lock with the job's name: pass it to gocron.WithDistributedLocker or
// gocron.WithDistributedJobLocker. It is a gocron.Locker, and safe for concurrent use.
type Locker struct {
	sess *session.Session
	opts LockerOptions

	mu   sync.Mutex // protects runs
	runs map[string]*run
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker whose locks belong to the session. The error is a
// *holdfast.ArgumentError.
func NewLocker(sess *session.Session, o LockerOptions) (*Locker, error) {
	o.Lock.MinHold = cmp.Or(o.Lock.MinHold, defaultMinHold)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Prefix = cmp.Or(o.Prefix, defaultPrefix)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	bad := func(argument, reason string) (*Locker, error) {
		return nil, &holdfast.ArgumentError{Argument: argument, Reason: reason}
	}
	switch {
	case sess == nil:
		return bad("sess", "is nil")
	case o.Lock.MinHold < 0:
		return bad("LockerOptions.Lock.MinHold", "is negative")
	case o.Timeout < 0:
		return bad("LockerOptions.Timeout", "is negative")
	case o.Lock.MaxHold > 0 && o.Lock.MaxHold < o.Lock.MinHold:
		return bad("LockerOptions.Lock.MinHold", fmt.Sprintf("is %v, longer than MaxHold, %v", o.Lock.MinHold,
			o.Lock.MaxHold))
	case o.Timeout >= o.Lock.MinHold:
		return bad("LockerOptions.Timeout", fmt.Sprintf("is %v, not less than MinHold, %v", o.Timeout, o.Lock.MinHold))
	}
	return &Locker{sess: sess, opts: o, runs: make(map[string]*run)}, nil
}

// Lock takes the lock for a run of the job with that name; gocron calls it. If the lock is held, the error Is
// locker.ErrLocked and gocron skips the run. Any other error skips the run as well, and is logged: the name is invalid
// (see locker.CheckName), or etcd did not answer within Timeout.
func (l *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	try, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	defer cancel()
	lk, err := locker.NewMutex(l.sess, l.opts.Prefix+name).With(l.opts.Lock).TryLock(try)
	if err != nil {
		if !errors.Is(err, locker.ErrLocked) && ctx.Err() == nil {
			l.opts.Logger.Warn("holdfast: gocron run skipped, its lock was not acquired", "job", name, "error", err)
		}
		return nil, err
	}
	r := &run{Lock: lk, locker: l, name: name}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[name] = r
	return r, nil
}

// Task returns a task for the job of that name, which must have gocron.WithName(name) and this Locker. fn is called
// with the lock of the run, for its token, and with a context that is canceled when the lock is lost, with the
// *holdfast.LostError as its context.Cause, and when gocron ends the job. It carries the lock for package fencing, and
// may have ended before fn is called.
//
// The error of the task, which gocron passes to AfterJobRunsWithError, is fn's, joined with the *holdfast.LostError if
// the lock was lost before fn returned. It Is ErrNotHeld if the run has no lock; then fn was not called.
func (l *Locker) Task(name string, fn func(ctx context.Context, lk *locker.Lock) error) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		l.mu.Lock()
		r := l.runs[name]
		l.mu.Unlock()
		if r == nil {
			return fmt.Errorf("gocron job %q: %w; it needs WithName(%[1]q) and WithDistributedLocker", name, ErrNotHeld)
		}
		ctx, cancel := r.WithContext(ctx)
		defer cancel()
		return withLoss(fn(ctx, r.Lock), r.Check())
	})
}

// withLoss returns err, joined with the loss that check reports unless err contains it.
func withLoss(err, check error) error {
	var lost, found *holdfast.LostError
	if !errors.As(check, &lost) || errors.As(err, &found) && found == lost {
		return err
	}
	return errors.Join(err, lost)
}

// run is one run of a job: a gocron.Lock.
type run struct {
	*locker.Lock
	locker *Locker
	name   string
}

// Unlock releases the lock; gocron calls it after the run. The name stays taken until MinHold has passed.
func (r *run) Unlock(ctx context.Context) error {
	r.locker.mu.Lock()
	if r.locker.runs[r.name] == r {
		delete(r.locker.runs, r.name)
	}
	r.locker.mu.Unlock()
	return r.Lock.Unlock(ctx)
}
