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
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/names"
)

const (
	// DefaultTTL is the TTL of a lease when Options.TTL is zero.
	DefaultTTL = 15 * time.Second
	// DefaultNamespace is the namespace when Options.Namespace is empty.
	DefaultNamespace = names.DefaultNamespace

	minTTL = time.Second
	maxTTL = 600 * time.Second

	defaultCloseTimeout = 5 * time.Second

	// defaultLockDelay: the watch of the session key told holders of a revoked lease within 150 ms. For the case
	// that the watch hangs, two looks at the held entries fit into the delay.
	defaultLockDelay = time.Second

	// minLockDelay leaves room for those 150 ms. After maxLockDelay, with the usual TTL, a holder has given up by
	// its own clock, so a longer delay would only make waiters wait.
	minLockDelay = 200 * time.Millisecond
	maxLockDelay = 60 * time.Second

	// maxOwner bounds an owner, in bytes.
	maxOwner = 256
)

// Options of a session. The zero value of every field is its default. An invalid value is an error from New, a
// *holdfast.ArgumentError or *holdfast.NameError; it is never silently repaired.
type Options struct {
	// TTL of the lease: how long etcd keeps the locks of a process that has vanished. Default 15 s; whole seconds
	// from 1 s to 600 s. etcd may grant more (at least 1.5 election timeouts: 2 s with etcd's defaults), and the
	// session uses what was granted. A shorter TTL frees the locks of a dead process sooner, and tolerates shorter
	// pauses and outages.
	TTL time.Duration

	// Namespace is the first segment of every key this session writes, except entries under prefixes given to
	// NewMutexAt and NewAt. Default "holdfast". No "/", no leading "@", at most 64 bytes. Processes that contend
	// with each other must use the same namespace.
	Namespace string

	// Owner names this process for people who look into etcd: it is written to the session key and to every entry.
	// Default "host:pid"; at most 256 bytes. It does not affect exclusion.
	Owner string

	// Anonymous keeps the host name and the process ID out of etcd. Owner is then empty unless it is set.
	Anonymous bool

	// DriftMargin is subtracted from the TTL before it is trusted. It covers clock drift and timers that fire late.
	// Default the larger of TTL/10 and 200 ms; at most TTL/4. With too small a margin, a process with a slow clock
	// trusts its lease for longer than etcd keeps it; with too large a one, short outages cost the lease.
	DriftMargin time.Duration

	// LockDelay is how long a waiter of this session waits when the holder ahead of it lost its lease instead of
	// releasing: time for that holder to learn of the loss. It protects the holders ahead, not this session, so use
	// the same value in all processes. A release, a Close, and an entry deleted by hand cost no delay. The lock of
	// a holder that crashed is acquired TTL + LockDelay after its last renewal. Default 1 s; 200 ms (holders have
	// learned of a loss up to 150 ms late) to 60 s. Negative: no delay, for tests.
	LockDelay time.Duration

	// OnStateChange is called for every change of state, as if passed to Subscribe before New returns: in order, on a
	// goroutine of its own. It may be slow, block or panic without delaying a renewal.
	OnStateChange func(Event)

	// StayLost: a lost session stays lost. By default it gets a new lease, and calls that are blocked in Lock or
	// Campaign queue again under that.
	StayLost bool

	// CloseTimeout bounds Close and other releases when their context is already dead, and the time that Close
	// waits for callbacks. Default 5 s.
	CloseTimeout time.Duration

	// Retry paces the retries, and its Attempt bounds each write that is sent: default 4 s, less than 5 s. A
	// request that is not answered soon is sent again beside the first, for three times Attempt in all.
	// Retry.Notify is not called for renewals, which it could delay; and renewals pause for a sixth of the TTL at
	// most. The zero value is backoff's default. (After 5 s a member may answer DeadlineExceeded while the request
	// is in flight; etcd's client would then repeat a write by itself.)
	Retry backoff.Policy

	// Clock returns the time that has passed since some fixed moment. It must never run backwards, and must count
	// on while the machine is suspended. Every Check calls it, so it should take nanoseconds. Default
	// SystemClock(). For tests.
	Clock func() time.Duration

	// Logger gets one line for each change of state but the close, for callbacks that panic, and for releases that
	// could not be finished. Default slog.Default().
	Logger *slog.Logger

	// TracerProvider receives the spans of this session and of its locks and elections; docs/telemetry.md lists them.
	// Default: OpenTelemetry's global one, which does nothing until the program has set an SDK.
	TracerProvider trace.TracerProvider

	// MeterProvider receives the metrics, likewise.
	MeterProvider metric.MeterProvider

	// Attributes returns additional attributes for the spans and metrics of a lock or election, given its kind
	// ("lock" or "election") and name. Default none, so that no name leaves the process. It is called in every
	// acquisition, on the goroutine that acquires. In most backends each set of attributes is a time series of its
	// own, so return "billing" rather than "billing/job-7".
	Attributes func(kind, name string) []attribute.KeyValue
}

// validated validates the options as a whole and fills in the defaults.
func (o *Options) validated() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	if r.TTL == 0 {
		r.TTL = DefaultTTL
	}
	if r.TTL < minTTL || r.TTL > maxTTL || r.TTL%time.Second != 0 {
		return r, &holdfast.ArgumentError{Argument: "Options.TTL",
			Reason: fmt.Sprintf("is %v, not a whole number of seconds from %v to %v", r.TTL, minTTL, maxTTL)}
	}
	if r.DriftMargin < 0 || r.DriftMargin > r.TTL/4 {
		return r, &holdfast.ArgumentError{Argument: "Options.DriftMargin",
			Reason: fmt.Sprintf("is %v, not between 0 and a quarter of the TTL (%v)", r.DriftMargin, r.TTL/4)}
	}
	var err error
	if r.Namespace, err = names.Namespace(r.Namespace); err != nil {
		return r, err
	}
	if len(r.Owner) > maxOwner {
		return r, &holdfast.ArgumentError{Argument: "Options.Owner", Reason: fmt.Sprintf("is longer than %d bytes", maxOwner)}
	}
	if r.CloseTimeout == 0 {
		r.CloseTimeout = defaultCloseTimeout
	}
	if r.CloseTimeout < 0 {
		return r, &holdfast.ArgumentError{Argument: "Options.CloseTimeout", Reason: "is negative"}
	}
	if r.Retry, err = attempt.Policy("Options.Retry", r.Retry); err != nil {
		return r, err
	}
	switch {
	case r.LockDelay == 0:
		r.LockDelay = defaultLockDelay
	case r.LockDelay < 0:
		r.LockDelay = 0
	case r.LockDelay < minLockDelay || r.LockDelay > maxLockDelay:
		return r, &holdfast.ArgumentError{Argument: "Options.LockDelay",
			Reason: fmt.Sprintf("is %v, not between %v and %v; negative means none",
				r.LockDelay, minLockDelay, maxLockDelay)}
	}
	if r.Clock == nil {
		r.Clock = SystemClock()
	}
	if r.Logger == nil {
		r.Logger = slog.Default()
	}
	return r, nil
}
