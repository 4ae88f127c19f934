package lease

import (
	"context"
	"log/slog"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// Ref is a reference to a [Host]. It has no methods, so outside this module it can be passed around and nothing else.
type Ref struct{ host Host }

// NewRef returns a reference to h.
func NewRef(h Host) Ref { return Ref{h} }

// Open returns the host behind r; nil for the zero Ref.
func Open(r Ref) Host { return r.host }

// Host is a session as locks and elections see it. What needs one of its parts takes that.
type Host interface {
	Env
	Leases
	Work
}

// Env is what stays the same as long as a session lives.
type Env interface {
	// Client is the etcd client of the session.
	Client() *clientv3.Client
	// Namespace is the namespace of the session.
	Namespace() string
	// Logger is the logger of the session.
	Logger() *slog.Logger
	// Telemetry returns the session's instruments.
	Telemetry() *telemetry.Telemetry
	// Clock returns the session's clock.
	Clock() func() time.Duration
	// RetryPolicy returns the session's retry policy. Its Attempt is set.
	RetryPolicy() backoff.Policy
	// Sender returns the sender of requests that may be repeated.
	Sender() *requests.Sender
	// Identity says who the session is, for people who look into etcd.
	Identity() layout.Identity
	// LockDelay is how long a waiter waits when the entry ahead of it went together with its lease.
	LockDelay() time.Duration
	// TrailingSlash says that foreign prefixes end in "/" on purpose.
	TrailingSlash() bool
	// EpochKey is the key of the fencing epoch of the session's namespace.
	EpochKey() string
	// SessionKey is the session key of the lease with that ID.
	SessionKey(id clientv3.LeaseID) string
	// Context is done when Close begins. It carries no values, so that all watches made on it share one stream.
	Context() context.Context
}

// Leases are the leases of a session, one after the other.
type Leases interface {
	// State judges the session now.
	State() holdfast.State
	// Check judges the session now: nil, holdfast.ErrSuspended, a *holdfast.LostError or holdfast.ErrClosed.
	Check() error
	// Lease returns the latest lease, which may be lost.
	Lease() *Lease

	// Await returns the latest lease once it is not lost: at once if it is connected or suspended, otherwise when a new
	// one has followed. Errors: ctx's; holdfast.ErrClosed; holdfast.ErrClientClosed; under StayLost the
	// *holdfast.LostError; or why a new lease was refused.
	Await(ctx context.Context) (*Lease, error)

	// LeaseGone is told that etcd has refused a request about l because it does not know a lease. The request named l, or
	// also claims, the lease of its claims; clientv3.NoLease if it did not. Etcd does not say which of them is gone, so
	// LeaseGone reads the session key. If that stands, it was claims: another one will follow, and LeaseGone returns nil.
	// Otherwise it makes l lost and returns the loss. The cause is CauseClusterChanged if the endpoints lead to another
	// cluster, CauseExpired if l is not trusted any more, and CauseRevoked otherwise. The read takes at most a quarter of
	// a second.
	LeaseGone(ctx context.Context, l *Lease, claims clientv3.LeaseID, err error) *holdfast.LostError

	// PutSessionKey puts the session key of l again and returns the new gate. Every request that compares an older gate
	// fails from then on.
	PutSessionKey(ctx context.Context, l *Lease) (int64, error)

	// Renew renews another lease than the session's, once: a key that is to outlive the session has one of its own. The
	// reply is not proved, so nothing may be held by that lease.
	Renew(ctx context.Context, id clientv3.LeaseID) error
}

// Work is what runs on a session, and is kept there, until Close.
type Work interface {
	// Go runs f on a goroutine that Close joins. f must return soon after its context, the session's, is done. Go
	// reports false, and runs nothing, once the session is closed.
	Go(f func(ctx context.Context)) bool

	// Joining makes Close wait until done is called: exactly once, soon after the latest lease is lost, which is how
	// Close begins. Once the session is closed nothing waits for it.
	Joining() (done func())

	// BeforeRevoke registers a hook that runs each time the session is about to revoke a lease that may still be alive:
	// at Close, and after the lease was lost by the clock.
	//
	// l is lost by then, but its context.AfterFuncs may still be running. ctx belongs neither to the lease nor to the
	// session, so requests can be sent on it. It ends after half of CloseTimeout, or of Retry.Attempt if that is less;
	// the revocation follows in any case. Hooks run one after another, the latest first, as deferred calls do: what was
	// built on top of something ends before it. They run again if the revocation is repeated. At Close, Go refuses by
	// then.
	BeforeRevoke(hook func(ctx context.Context, l *Lease))

	// Extension returns what a package keeps per session under key; the first call makes it with create, which runs
	// under a mutex and so must only build.
	Extension(key any, create func() any) any

	// Detached returns a context, with ctx's values, for finishing what a caller began: ctx itself, or if that is
	// already dead, one that ends after CloseTimeout.
	Detached(ctx context.Context) (context.Context, context.CancelFunc)
}
