package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// Session keeps one lease alive, and gets another one after a loss. It is safe for concurrent use and meant to be
// shared.
type Session struct {
	client    *clientv3.Client
	opts      Options
	telemetry *telemetry.Telemetry
	sender    *attempt.Sender
	identity  layout.Identity
	keyValue  string // of session keys

	ctx    context.Context // until Close
	cancel context.CancelFunc
	joined chan struct{} // closed when Close has ended the lease and joined the goroutines
	done   chan struct{} // closed when Close has finished
	ended  chan struct{} // closed when no lease will follow

	unwatchClient func() bool
	hooks         hooks

	mu         sync.Mutex     // protects what follows
	lease      *lease.Lease   // the latest
	refused    error          // why etcd last refused another lease; nil if it did not
	refusals   int            // how often it did
	replaced   chan struct{}  // closed when another lease follows, or is refused
	told       holdfast.State // of the last event
	closing    bool
	revokeErr  error
	subs       map[*subscriber]struct{}
	extensions map[any]any
	running    sync.WaitGroup // goroutines started by host.Go; Add only while !closing
}

// New obtains a lease and keeps it alive until Close. A nil opts means all defaults. New tries until ctx ends, which
// bounds nothing else. The session never closes cli.
//
// Errors: *holdfast.ArgumentError and *holdfast.NameError before anything is sent; otherwise etcd's error, joined with
// ctx's. Test for etcderr.ErrNotConnected, holdfast.ErrClientClosed, and rpctypes.ErrPermissionDenied (of the session
// key; the message has the etcdctl command that grants it), rpctypes.ErrNoSpace (the store is full). After an error
// there is nothing to close.
func New(ctx context.Context, cli *clientv3.Client, opts *Options) (*Session, error) {
	if ctx == nil {
		return nil, &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	if cli == nil || cli.Ctx() == nil || cli.KV == nil || cli.Lease == nil || cli.Watcher == nil {
		return nil, &holdfast.ArgumentError{Argument: "cli", Reason: "is nil, was not made by clientv3, " +
			"or lacks its KV, Lease or Watcher"}
	}
	resolved, err := opts.validate()
	if err != nil {
		return nil, err
	}
	s := &Session{
		client: cli,
		opts:   resolved,
		telemetry: telemetry.New(telemetry.Options{
			TracerProvider: resolved.TracerProvider, MeterProvider: resolved.MeterProvider, Attributes: resolved.Attributes,
		}),
		sender:     attempt.New(cli, resolved.Retry),
		identity:   resolved.identity(),
		joined:     make(chan struct{}),
		done:       make(chan struct{}),
		ended:      make(chan struct{}),
		replaced:   make(chan struct{}),
		subs:       make(map[*subscriber]struct{}),
		extensions: make(map[any]any),
	}
	s.keyValue = s.identity.Encode()
	if s.clientClosed() {
		return nil, fmt.Errorf("holdfast: no session: %w", holdfast.ErrClientClosed)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	policy := resolved.Retry
	policy.Attempt = 0 // attempt.Once bounds each request
	err = backoff.Retry(ctx, policy, func(ctx context.Context) (err error) {
		s.lease, err = s.grantOnce(ctx)
		return err
	})
	if errors.Is(err, rpctypes.ErrNoSpace) {
		err = fmt.Errorf("%w: the store of etcd is full; \"holdfast check\" says what to do", err)
	}
	if err != nil {
		s.cancel()
		return nil, fmt.Errorf("holdfast: no session: %w", err)
	}
	if resolved.OnStateChange != nil {
		s.Subscribe(resolved.OnStateChange)
	}
	s.told = holdfast.Connected
	s.telemetry.State("", stateLabel(holdfast.Connected))
	s.unwatchClient = s.watchClient()
	l := s.lease
	host{s}.Go(func(context.Context) { s.run(l) }) // joined by Close
	host{s}.Go(func(context.Context) { s.watchSessionKey(l) })
	host{s}.Go(s.warnOfOldServers)
	return s, nil
}

// State returns the state now.
func (s *Session) State() holdfast.State {
	switch err := s.Check(); {
	case err == nil:
		return holdfast.Connected
	case errors.Is(err, holdfast.ErrSuspended):
		return holdfast.Suspended
	case errors.Is(err, holdfast.ErrClosed):
		return holdfast.Closed
	default:
		return holdfast.Lost
	}
}

// Check judges the session now, by the clock and without an RPC, so it is right even after a pause. It returns nil,
// holdfast.ErrSuspended, a *holdfast.LostError (until a new lease has followed), or holdfast.ErrClosed.
func (s *Session) Check() error {
	if s.ctx.Err() != nil {
		return holdfast.ErrClosed
	}
	return s.latest().Check()
}

// Done is closed when no lease will follow: the session or its etcd client was closed, or the lease was lost under
// Options.StayLost. Check says which.
func (s *Session) Done() <-chan struct{} { return s.ended }

// Remaining is how long the latest lease is trusted without a further renewal; 0 when lost or closed.
func (s *Session) Remaining() time.Duration {
	if s.ctx.Err() != nil {
		return 0
	}
	return s.latest().Remaining()
}

// TrustedUntil is Remaining as wall-clock time, for display only.
func (s *Session) TrustedUntil() time.Time { return time.Now().Add(s.Remaining()) }

// Lease returns the ID of the latest lease, even if it is lost.
func (s *Session) Lease() clientv3.LeaseID { return s.latest().ID() }

// Unconfirmed is the time since the last confirmed renewal was sent.
func (s *Session) Unconfirmed() time.Duration {
	return s.latest().Unconfirmed()
}

func (s *Session) latest() *lease.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease
}

// install makes next the latest lease. It returns false if the session was closed in the meantime.
func (s *Session) install(next *lease.Lease) bool {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		s.dropLease(next)
		return false
	}
	s.lease, s.refused = next, nil
	close(s.replaced)
	s.replaced = make(chan struct{})
	s.mu.Unlock()
	host{s}.Go(func(context.Context) { s.watchSessionKey(next) })
	s.publish(Event{State: holdfast.Connected, Previous: holdfast.Lost, Lease: next.ID()})
	return true
}

// dropLease revokes a lease other than the latest after Close has begun. It has its own timeout, since s.ctx is done.
func (s *Session) dropLease(l *lease.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.CloseTimeout)
	defer cancel()
	s.revoke(ctx, l)
}

func (s *Session) publishLoss(l *lease.Lease, last holdfast.State) {
	lost := l.Lost()
	s.publish(Event{State: holdfast.Lost, Previous: last, Lease: l.ID(), Err: lost})
	s.telemetry.SessionLost(lost.Cause.String(), lost.Since)
}

// Client returns the etcd client of the session.
func (s *Session) Client() *clientv3.Client { return s.client }

// Namespace returns the namespace in use.
func (s *Session) Namespace() string { return s.opts.Namespace }

// Logger returns the logger in use.
func (s *Session) Logger() *slog.Logger { return s.opts.Logger }
