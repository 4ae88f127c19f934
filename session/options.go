package session

import (
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/names"
)

const (
	// DefaultTTL is the lease TTL asked for when Options.TTL is zero.
	DefaultTTL = 15 * time.Second
	// DefaultNamespace is the namespace when Options.Namespace is empty.
	DefaultNamespace = names.DefaultNamespace

	minTTL = time.Second
	maxTTL = 600 * time.Second

	// attemptTimeout bounds a single RPC when Options.Retry.Attempt does not: a
	// half-open connection answers nothing, and gRPC alone would not notice
	// for minutes. Less than maxAttempt.
	attemptTimeout = 4 * time.Second

	// maxAttempt: a member that is given that long may answer DeadlineExceeded
	// while the context still lives. etcd's client then sends the write again by
	// itself, and tells nobody.
	maxAttempt = 5 * time.Second

	// defaultLockDelay: holders were told of a revoked lease within 150 ms, by the
	// watch of its session key. Two looks at the entries of holders fit into it, for
	// the case that the watch hangs.
	defaultLockDelay = time.Second

	// minLockDelay would leave no room for those 150 ms if it was less. More than
	// maxLockDelay only makes waiters wait: by then, with the usual TTL, a holder has
	// given up by its own clock.
	minLockDelay = 200 * time.Millisecond
	maxLockDelay = 60 * time.Second

	// maxOwner bounds an owner, in bytes.
	maxOwner = 256
)

// Options of a session. The zero value of every field is its default; a value
// that cannot be used is an *holdfast.ArgumentError or *holdfast.NameError from New, never
// silently repaired.
type Options struct {
	// TTL of the lease: how long etcd keeps locks of a process that has
	// vanished. Default 15 s; whole seconds from 1 s to 600 s. etcd may grant
	// more (at least 1.5 election timeouts: 2 s with etcd's defaults); what it
	// granted is used. A short TTL frees the locks of a dead process sooner
	// and tolerates shorter pauses and outages.
	TTL time.Duration

	// Namespace is the first segment of every key this session writes, except
	// for entries under prefixes given to NewMutexAt and NewAt. Default
	// "holdfast". No "/", no leading "@", at most 64 bytes. Processes that
	// contend with each other must use the same.
	Namespace string

	// Owner says who this is, for people who look into etcd: it stands in the
	// session key and in every entry. Default "host:pid"; at most 256 bytes. It
	// does not affect exclusion.
	Owner string

	// Anonymous leaves the name of the host and the process ID out of what is
	// written to etcd, and Owner empty unless it is set.
	Anonymous bool

	// DriftMargin is taken off the TTL before it is trusted; it covers clocks
	// that run at different rates and timers that fire late. Default the
	// larger of TTL/10 and 200 ms; at most TTL/4. Too small, and a slow clock
	// believes for longer than etcd keeps; too large, and short outages cost
	// the lease.
	DriftMargin time.Duration

	// LockDelay is how long a waiter of this session waits when the holder ahead
	// of it did not release but lost its lease: time for that holder to be told.
	// It protects the holders ahead, not this session, so use the same in all
	// processes. A release, a Close and an entry deleted by hand cost no delay; a
	// holder that crashed is followed TTL + LockDelay after its last renewal.
	// Default 1 s; from 200 ms, since holders have been told up to 150 ms late, to
	// 60 s. Negative: no delay, for tests.
	LockDelay time.Duration

	// OnStateChange is told every change of state, in order, from a goroutine
	// of its own. It may be slow, block or panic without delaying a renewal.
	// It is as if passed to Subscribe before New returns.
	OnStateChange func(Event)

	// StayLost keeps a lost session lost. By default a new lease follows by
	// itself, and calls blocked in Lock or Campaign queue again under it.
	StayLost bool

	// CloseTimeout bounds what Close, and other releases that were given a
	// context already dead, do on their own, and how long Close waits for
	// callbacks. Default 5 s.
	CloseTimeout time.Duration

	// Retry paces what is tried again, and bounds each single write by its
	// Attempt: default 4 s, less than 5 s. What is not answered soon is sent
	// again beside it, for three times the Attempt as a whole. Notify is not
	// told of renewals, which it could delay. (A member given 5 s may answer
	// DeadlineExceeded while the request is under way; etcd's client then repeats
	// a write by itself.) The zero value is backoff's default. Renewals are
	// paced by it as far as it fits: they pause for a sixth of the TTL at most.
	Retry backoff.Policy

	// Clock is elapsed time; default SystemClock(). For tests.
	Clock Clock

	// Logger is told of losses, of panicking callbacks and of releases that
	// could not be finished; it is quiet while all is well. Default
	// slog.Default().
	Logger *slog.Logger

	// TracerProvider receives the spans that docs/telemetry.md lists, of this
	// session and of all that is built on it. Default: OpenTelemetry's global
	// one, which does nothing until the program has set an SDK.
	TracerProvider trace.TracerProvider

	// MeterProvider receives the metrics, likewise.
	MeterProvider metric.MeterProvider

	// Attributes adds attributes to the spans and metrics of a lock or election,
	// given its kind ("lock" or "election") and name. Default: none, so that
	// no name leaves the process. It is called at every acquisition, on the
	// goroutine that acquires. Each set of attributes is a time series of its
	// own in most backends: return "billing", not "billing/job-7", and mind
	// what the name tells.
	Attributes func(kind, name string) []attribute.KeyValue
}

// resolved checks the options as a whole and fills in the defaults.
func (o *Options) resolved() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	if r.TTL == 0 {
		r.TTL = DefaultTTL
	}
	if r.TTL < minTTL || r.TTL > maxTTL || r.TTL%time.Second != 0 {
		return r, &holdfast.ArgumentError{Argument: "Options.TTL", Reason: fmt.Sprintf("%v is not a whole number of seconds from %v to %v", r.TTL, minTTL, maxTTL)}
	}
	if r.DriftMargin < 0 || r.DriftMargin > r.TTL/4 {
		return r, &holdfast.ArgumentError{Argument: "Options.DriftMargin", Reason: fmt.Sprintf("%v is not between 0 and a quarter of the TTL (%v)", r.DriftMargin, r.TTL/4)}
	}
	var err error
	if r.Namespace, err = names.Namespace(r.Namespace); err != nil {
		return r, err
	}
	if len(r.Owner) > maxOwner {
		return r, &holdfast.ArgumentError{Argument: "Options.Owner", Reason: fmt.Sprintf("is longer than %d bytes", maxOwner)}
	}
	if r.CloseTimeout == 0 {
		r.CloseTimeout = 5 * time.Second
	}
	if r.CloseTimeout < 0 {
		return r, &holdfast.ArgumentError{Argument: "Options.CloseTimeout", Reason: "is negative"}
	}
	if err := r.Retry.Validate(); err != nil {
		return r, &holdfast.ArgumentError{Argument: "Options.Retry", Reason: err.Error()}
	}
	if r.Retry.Attempt >= maxAttempt {
		return r, &holdfast.ArgumentError{Argument: "Options.Retry", Reason: fmt.Sprintf("Attempt is %v, and must be less than %v: "+
			"etcd's client could repeat a write by itself", r.Retry.Attempt, maxAttempt)}
	}
	switch {
	case r.LockDelay == 0:
		r.LockDelay = defaultLockDelay
	case r.LockDelay < 0:
		r.LockDelay = 0
	case r.LockDelay < minLockDelay || r.LockDelay > maxLockDelay:
		return r, &holdfast.ArgumentError{Argument: "Options.LockDelay", Reason: fmt.Sprintf("%v is not between %v and %v; negative means none",
			r.LockDelay, minLockDelay, maxLockDelay)}
	}
	if r.Retry.Attempt == 0 {
		r.Retry.Attempt = attemptTimeout
	}
	if r.Clock == nil {
		r.Clock = SystemClock()
	}
	if r.Logger == nil {
		r.Logger = slog.Default()
	}
	return r, nil
}
