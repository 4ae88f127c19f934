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

// Ref is a reference to a [Host]. A session embeds it under an unexported name, and its method is unexported, too: so
// only packages of this module can open a session.
type Ref struct{ host *Host }

// NewRef returns a reference to h.
func NewRef(h *Host) Ref { return Ref{h} }

func (r Ref) open() *Host { return r.host }

// Open returns the host behind a *session.Session; nil for a nil or a zero one.
func Open[S any, P interface {
	*S
	open() *Host
}](sess P) *Host {
	if sess == nil {
		return nil
	}
	return sess.open()
}

// Host is a session as locks and elections see it. Code that needs only a part of it takes that part.
type Host struct {
	*Env
	Leases
	Work
}

// Env has what stays the same as long as a session lives.
type Env struct {
	Client    *clientv3.Client
	Namespace string
	Logger    *slog.Logger
	Telemetry *telemetry.Telemetry
	Clock     func() time.Duration
	Retry     backoff.Policy
	Sender    *requests.Sender
	Identity  layout.Identity // who the session is, for people who look into etcd
	LockDelay time.Duration   // how long a waiter waits when the entry ahead of it went together with its lease

	// Context is done when Close begins. It carries no values, so all watches made on it can share a stream.
	Context context.Context
}

// Alone returns the Env of a client without a session: what it takes to send requests and to watch.
func Alone(cli *clientv3.Client, policy backoff.Policy) *Env {
	return &Env{Client: cli, Retry: policy, Sender: requests.NewSender(cli, policy), Context: context.Background()}
}

// Leases are the leases of a session, one after the other.
type Leases interface {
	// State judges the session now.
	State() holdfast.State
	// Check judges the session now: nil, holdfast.ErrSuspended, a *holdfast.LostError or holdfast.ErrClosed.
	Check() error
	// Lease returns the latest lease, which may be lost.
	Lease() *Lease

	// Await returns the latest lease if it is connected or suspended. If it is lost, Await waits for the next. Errors:
	// ctx's; holdfast.ErrClosed; holdfast.ErrClientClosed; under StayLost the *holdfast.LostError; or why a new lease was
	// refused.
	Await(ctx context.Context) (*Lease, error)

	// LeaseGone makes l lost after etcd has refused a request with "lease not found": l has gone, or the lease of its
	// claims. It reads the session key, for at most a quarter of a second, to tell the cause: CauseClusterChanged if the
	// endpoints lead to another cluster, CauseExpired if l is not trusted any more, and CauseRevoked otherwise.
	LeaseGone(ctx context.Context, l *Lease, err error)

	// PutSessionKey puts the session key of l again and returns the new gate. From then on every request with an older
	// gate fails.
	PutSessionKey(ctx context.Context, l *Lease) (int64, error)

	// Renew renews another lease than the session's, once: a key may have a lease of its own and outlive the session.
	// Nothing proves the reply, so nothing may be held by that lease.
	Renew(ctx context.Context, id clientv3.LeaseID) error
}

// Work runs goroutines on a session, and keeps what packages store there, until Close.
type Work interface {
	// Go runs f on a goroutine that Close joins. f must return soon after its context, the session's, is done. Go
	// reports false, and runs nothing, once the session is closed.
	Go(f func(ctx context.Context)) bool

	// Joining makes Close wait for a call of done. Call it exactly once, and soon after the latest lease is lost: with a
	// loss Close begins. Once the session is closed nothing waits for it.
	Joining() (done func())

	// BeforeRevoke registers a hook. It runs before the session revokes a lease that may still be alive: at Close, and
	// after the lease was lost by the clock.
	//
	// l is lost by then, but its context.AfterFuncs may still be running. ctx belongs neither to the lease nor to the
	// session, so requests can be sent on it. It ends after half of CloseTimeout, 2 s at most; the revocation follows
	// in any case. Hooks run one after another, the latest first, like deferred calls. They run
	// again if the revocation is repeated. At Close, Go refuses by then.
	BeforeRevoke(hook func(ctx context.Context, l *Lease))

	// Extension returns what a package keeps per session under key. The first call makes it with create. That runs under
	// a mutex, so it must only build.
	Extension(key any, create func() any) any

	// Detached returns a context, with ctx's values, to finish what a caller began: ctx itself, or if that is already
	// dead, a context of CloseTimeout.
	Detached(ctx context.Context) (context.Context, context.CancelFunc)
}
