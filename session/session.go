package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// Session keeps one lease alive, and gets another one after a loss. It is safe for concurrent use and meant to be
// shared.
type Session struct {
	env     *env     // what stays the same: the client, the options
	granter *granter // obtains leases, and revokes them
	leases  *leases  // the latest one, and who waits for the next
	events  *events  // who is told of its states
	work    *work    // what runs on the session

	cancel        context.CancelFunc // ends env.ctx
	unwatchClient func() bool
	ended         chan struct{} // closed when no lease will follow
	joined        chan struct{} // closed when Close has ended the lease and joined the goroutines
	done          chan struct{} // closed when Close has finished
	revokeErr     error         // of Close; set before done is closed
}

// New obtains a lease and keeps it alive until Close. A nil opts means all defaults. New tries until ctx ends, which
// bounds nothing else; after a second, and then each minute, it logs what each endpoint says. The session never closes
// cli.
//
// Errors: *holdfast.ArgumentError and *holdfast.NameError before anything is sent; otherwise etcd's error, joined with
// ctx's. Test for etcderr.ErrNotConnected, ErrNotEtcd, holdfast.ErrClientClosed, rpctypes.ErrPermissionDenied (of the
// session key; the message has the etcdctl command that grants it), and rpctypes.ErrNoSpace (the store is full). After
// an error there is nothing to close.
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
	if cli.Ctx().Err() != nil {
		return nil, fmt.Errorf("holdfast: no session: %w", holdfast.ErrClientClosed)
	}
	s := newSession(cli, resolved)
	s.env.observer = lease.ObserverIn(ctx)
	policy := resolved.Retry
	policy.Attempt = 0 // requests.Once bounds each request
	var first *lease.Lease
	stop := s.env.tellWait(ctx)
	err = backoff.Retry(ctx, policy, func(ctx context.Context) (err error) {
		first, err = s.granter.obtain(ctx)
		return err
	})
	stop()
	if errors.Is(err, rpctypes.ErrNoSpace) {
		err = fmt.Errorf("%w: the store of etcd is full; \"holdfast check\" says what to do", err)
	}
	if err != nil {
		s.cancel()
		return nil, fmt.Errorf("holdfast: no session: %w", err)
	}
	s.start(first)
	return s, nil
}

// newSession puts the parts together. Nothing runs yet.
func newSession(cli *clientv3.Client, o Options) *Session {
	ctx, cancel := context.WithCancel(context.Background())
	e := newEnv(ctx, cli, o)
	w := &work{env: e, extensions: make(map[any]any)}
	return &Session{
		env:     e,
		granter: &granter{e, w},
		leases:  &leases{env: e, replaced: make(chan struct{})},
		events:  &events{env: e, told: holdfast.Connected, subs: make(map[*subscriber]struct{})},
		work:    w,
		cancel:  cancel, ended: make(chan struct{}), joined: make(chan struct{}), done: make(chan struct{}),
	}
}

// start starts what Close ends.
func (s *Session) start(first *lease.Lease) {
	s.leases.install(first)
	if s.env.opts.OnStateChange != nil {
		s.Subscribe(s.env.opts.OnStateChange)
	}
	s.env.telemetry.State("", stateLabel(holdfast.Connected))
	s.unwatchClient = s.leases.endWithClient()
	s.work.Go(func(context.Context) { s.run(first) })
	s.work.Go(s.env.warnOfOldServers)
}

// run keeps one lease after the other alive until no further one will follow.
func (s *Session) run(first *lease.Lease) {
	defer close(s.ended)
	for k := s.keeperOf(first); k != nil; k = s.next() {
		if !k.keep() {
			return
		}
		s.work.Go(func(ctx context.Context) { s.granter.revokeLost(ctx, k.lease) })
	}
}

// keeperOf returns the keeper of a lease. The watches of the session key have begun.
func (s *Session) keeperOf(l *lease.Lease) *keeper {
	k := &keeper{env: s.env, events: s.events, lease: l, key: s.env.keyOf(l)}
	newWatches(s.work, k.key).start()
	return k
}

// next obtains the lease that follows a loss, and returns its keeper; nil if none will follow.
func (s *Session) next() *keeper {
	if s.leases.endedErr(s.leases.Lease()) != nil {
		return nil
	}
	stop := s.env.tellWait(s.env.ctx)
	l, err := s.granter.obtainNext(s.leases.refuse)
	stop()
	if err != nil {
		return nil // closed
	}
	if !s.leases.install(l) {
		s.granter.dropLease(l)
		return nil
	}
	k := s.keeperOf(l)
	s.events.publish(Event{State: holdfast.Connected, Previous: holdfast.Lost, Lease: l.ID()})
	return k
}

// State returns the state now.
func (s *Session) State() holdfast.State { return s.leases.State() }

// Check judges the session now, by the clock and without an RPC, so it is right even after a pause. It returns nil,
// holdfast.ErrSuspended, a *holdfast.LostError (until a new lease has followed), or holdfast.ErrClosed.
func (s *Session) Check() error { return s.leases.Check() }

// String names the latest lease, and says how it is.
func (s *Session) String() string {
	if s.leases == nil {
		return "no session"
	}
	return fmt.Sprintf("session of lease %x, %s", int64(s.Lease()), s.State())
}

// Done is closed when no lease will follow: the session or its etcd client was closed, or the lease was lost under
// Options.StayLost. Check says which.
func (s *Session) Done() <-chan struct{} { return s.ended }

// Remaining is how long the latest lease is trusted without a further renewal; 0 when lost or closed.
func (s *Session) Remaining() time.Duration {
	if s.env.ctx.Err() != nil {
		return 0
	}
	return s.leases.Lease().Remaining()
}

// Lease returns the ID of the latest lease, even if it is lost.
func (s *Session) Lease() clientv3.LeaseID { return s.leases.Lease().ID() }

// Client returns the etcd client of the session.
func (s *Session) Client() *clientv3.Client { return s.env.client }

// Namespace returns the namespace in use.
func (s *Session) Namespace() string { return s.env.opts.Namespace }

// Logger returns the logger in use.
func (s *Session) Logger() *slog.Logger { return s.env.opts.Logger }
