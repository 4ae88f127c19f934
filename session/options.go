package session

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/retry"
)

const (
	// DefaultTTL is the TTL of a lease when Options.TTL is zero.
	DefaultTTL = 15 * time.Second
	// DefaultNamespace is the namespace when Options.Namespace is empty: "holdfast".
	DefaultNamespace = names.DefaultNamespace

	minTTL = time.Second
	maxTTL = 600 * time.Second

	defaultCloseTimeout = 5 * time.Second

	// defaultLockDelay: the watch of the session key told holders of a revoked lease within 150 ms. If the watch hangs,
	// two polls of the held entries fit into the delay. And so does an ordinary pause: with 1 s, a holder whose process
	// or link stalled for 1.5 s as its lease was revoked was told after another client held.
	defaultLockDelay = 2 * time.Second

	// minLockDelay leaves room for those 150 ms. After maxLockDelay, with the usual TTL, a holder has given up by
	// its own clock, so a longer delay would only make waiters wait.
	minLockDelay = 200 * time.Millisecond
	maxLockDelay = 60 * time.Second

	// minDriftMargin: after some losses the next ones hold so soon, as they do after minLockDelay.
	minDriftMargin = minLockDelay

	// maxOwner bounds an owner, in bytes.
	maxOwner = 256
)

// Options of a session. The zero value of every field is its default. An invalid value is a *holdfast.ArgumentError or
// *holdfast.NameError from New.
type Options struct {
	// TTL is how long etcd keeps the locks of a process that has vanished. Default 15 s; whole seconds from 1 s to 600
	// s; etcd grants at least 1.5 election timeouts (2 s with its defaults). Shorter frees locks sooner after a crash,
	// and tolerates shorter pauses and outages. Choose six round trips to etcd or more: below 4.5 the session is
	// suspended at each renewal, and logs a warning. "holdfast check" measures them.
	TTL time.Duration

	// Namespace is the first segment of every key, except below prefixes given to NewMutexAt and NewAt. Default
	// "holdfast". UTF-8, no "/", no leading "@", at most 64 bytes. All contenders must use the same.
	Namespace string

	// Owner names this process in the session key and in every entry, for people. Default "host:pid"; at most 256
	// bytes.
	Owner string

	// Anonymous keeps the host name and the process ID out of etcd. Owner is then empty by default.
	Anonymous bool

	// DriftMargin is subtracted from the TTL, for clock drift and late timers. Default the larger of TTL/10 and 200 ms;
	// 200 ms to TTL/4. Too small, a process with a slow clock trusts its lease for longer than etcd keeps it; too large,
	// short outages cost the lease. It is also the time that holders have to stop if the session gives up a lease that
	// etcd still keeps: then the session revokes it, and the next ones hold without a LockDelay.
	DriftMargin time.Duration

	// LockDelay is how long a waiter of this session waits when the holder ahead lost its lease instead of releasing:
	// meanwhile that holder learns of its loss. It protects the holders ahead: use the same value in all processes.
	// Default 2 s; 200 ms (holders have learned of a loss up to 150 ms late) to 60 s. Negative: no delay, for tests.
	LockDelay time.Duration

	// OnStateChange is a callback as if passed to Subscribe before New returns. It may be slow, block or panic.
	OnStateChange func(Event)

	// StayLost keeps a lost session lost. By default it gets a new lease, and blocked calls of Lock and Campaign queue
	// again under that.
	StayLost bool

	// CloseTimeout bounds Close and other releases if their context is dead, and Close's wait for callbacks. Default 5
	// s.
	CloseTimeout time.Duration

	// Retry paces the retries; for renewals at most a sixth of the trusted time. A request lasts as long as its
	// caller's context, and is sent again beside the first.
	Retry backoff.Policy

	// Clock returns the time since some fixed moment. It must never run backwards, must count on while the machine
	// sleeps, and should take nanoseconds. Default SystemClock(). For tests.
	Clock func() time.Duration

	// Logger gets changes of state, callbacks that panic, and releases that could not be finished. A handler must not
	// block for long, or panic. Changes of state are written beside the rest. All other lines are written where they come
	// about, so renewals, watches and polls may wait for the handler, and a loss may then be told late. Default
	// slog.Default().
	Logger *slog.Logger

	// Telemetry says where spans and metrics go. Default: to OpenTelemetry's globals.
	Telemetry Telemetry
}

// Telemetry is where spans and metrics of a session go, and what they say in addition. docs/telemetry.md lists them.
type Telemetry struct {
	// TracerProvider receives the spans. Default: OpenTelemetry's global one.
	TracerProvider trace.TracerProvider

	// MeterProvider receives the metrics, likewise.
	MeterProvider metric.MeterProvider

	// Attributes returns additional attributes for the spans and metrics of a lock or election, given its kind
	// and name. Default none. It runs on the goroutine that acquires. Each set of attributes is a time series, so return
	// "billing" rather than "billing/job-7".
	Attributes func(kind holdfast.Kind, name string) []attribute.KeyValue
}

// validate checks the options as a whole, and returns them with the defaults.
func (r Options) validate() (Options, error) {
	r.TTL = cmp.Or(r.TTL, DefaultTTL)
	if r.TTL < minTTL || r.TTL > maxTTL || r.TTL%time.Second != 0 {
		return r, &holdfast.ArgumentError{Argument: "Options.TTL",
			Reason: fmt.Sprintf("is %v, not a whole number of seconds from %v to %v", r.TTL, minTTL, maxTTL)}
	}
	if r.DriftMargin != 0 && (r.DriftMargin < minDriftMargin || r.DriftMargin > r.TTL/4) {
		return r, &holdfast.ArgumentError{Argument: "Options.DriftMargin", Reason: fmt.Sprintf(
			"is %v, not between %v and a quarter of the TTL (%v)", r.DriftMargin, minDriftMargin, r.TTL/4)}
	}
	var err error
	if r.Namespace, err = names.Namespace(r.Namespace); err != nil {
		return r, err
	}
	if len(r.Owner) > maxOwner {
		return r, &holdfast.ArgumentError{Argument: "Options.Owner", Reason: fmt.Sprintf("is longer than %d bytes", maxOwner)}
	}
	r.CloseTimeout = cmp.Or(r.CloseTimeout, defaultCloseTimeout)
	if r.CloseTimeout < 0 {
		return r, &holdfast.ArgumentError{Argument: "Options.CloseTimeout", Reason: "is negative"}
	}
	if err := retry.CheckPauses("Options.Retry", r.Retry.Initial, r.Retry.Max); err != nil {
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
	r.Logger = cmp.Or(r.Logger, slog.Default())
	return r, nil
}

// SystemClock returns the default clock: the larger of Go's monotonic clock, which stops while the machine sleeps, and,
// on Linux, CLOCK_BOOTTIME. That is real even in a testing/synctest bubble: use MonotonicClock there.
func SystemClock() func() time.Duration {
	start, boot := time.Now(), bootTime()
	return func() time.Duration { return max(time.Since(start), bootTime()-boot) }
}

// MonotonicClock returns Go's monotonic clock.
func MonotonicClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
