package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// Where to read on, from Session.run below:
//
//	grant.go    a lease is obtained: a pair of leases, the session key
//	keeper.go   a lease is kept alive, and its changes of state are noticed
//	proof.go    a renewal counts only if a read proves it
//	revoke.go   a lost lease is revoked, and so is the last one
//	key.go      the session key: its put, its reads, what its absence means
//	watches.go  the session key is watched on a majority of the members
//	leases.go   what calls of Lock see: the latest lease, or the next one
//	events.go   what users see of the states
//	close.go    what runs on a session, and how Close joins it
//	wire.go     the requests and streams that etcd's client cannot send
//	servers.go  what the log says about the servers
//
// internal/lease has the arithmetic: until when a lease is trusted, when it is suspended, when the next renewal is due.

// Session keeps one lease alive, and gets another one after a loss. It is safe for concurrent use: share it.
type Session struct {
	ref              // opens the session to packages of this module
	env     *env     // what stays the same: the client, the options
	granter *granter // obtains leases, and revokes them
	leases  *leases  // the latest one, and who waits for the next
	events  *events  // who is told of its states
	work    *work    // what runs on the session

	cancel        context.CancelFunc // ends env.Context
	unwatchClient func() bool
	ended         chan struct{} // closed when no lease will follow
	joined        chan struct{} // closed when Close has ended the lease and joined the goroutines
	done          chan struct{} // closed when Close has finished
	revokeErr     error         // of Close; set before joined and done are closed
}

// New obtains a lease and keeps it alive until Close. New tries until ctx ends, which bounds nothing else. After a
// second, and then each minute, it logs why it has none. The session never closes cli.
//
// Errors: *holdfast.ArgumentError and *holdfast.NameError before anything is sent; otherwise etcd's error, joined with
// ctx's. Test for etcderr.ErrNotConnected, ErrNotEtcd, holdfast.ErrClientClosed, rpctypes.ErrPermissionDenied (of the
// session key; the message has the etcdctl command that grants it), and rpctypes.ErrNoSpace (the store is full). After
// an error there is nothing to close.
func New(ctx context.Context, cli *clientv3.Client, o Options) (*Session, error) {
	if ctx == nil {
		return nil, &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	if cli == nil || cli.Ctx() == nil || cli.KV == nil || cli.Lease == nil || cli.Watcher == nil {
		return nil, &holdfast.ArgumentError{Argument: "cli", Reason: "is nil, was not made by clientv3, " +
			"or lacks its KV, Lease or Watcher"}
	}
	resolved, err := o.validate()
	if err != nil {
		return nil, err
	}
	if cli.Ctx().Err() != nil {
		return nil, fmt.Errorf("holdfast: no session: %w", holdfast.ErrClientClosed)
	}
	s := newSession(cli, resolved)
	s.env.observer = lease.ObserverIn(ctx)
	first, err := s.granter.await(ctx, func(err error) error { return err })
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

// newSession puts the parts together, and starts nothing.
func newSession(cli *clientv3.Client, o Options) *Session {
	ctx, cancel := context.WithCancel(context.Background())
	e := &env{opts: o, streams: streamConn(cli), Env: lease.Env{
		Client: cli, Namespace: o.Namespace, Logger: o.Logger, Telemetry: telemetry.New(telemetry.Options(o.Telemetry)),
		Clock: o.Clock, Retry: o.Retry, Sender: requests.NewSender(cli, o.Retry), Identity: o.identity(),
		LockDelay: o.LockDelay, Context: ctx,
	}}
	w := &work{env: e, extensions: make(map[any]any)}
	l := &leases{env: e, replaced: make(chan struct{})}
	es := &events{env: e, told: holdfast.Connected, subs: make(map[*subscriber]struct{})}
	// Not in publish: a handler that blocks would keep the watchdog from telling the loss that follows a suspension.
	es.subs[&subscriber{fn: es.log, name: "the handler of session.Options.Logger"}] = struct{}{}
	return &Session{
		ref:     lease.NewRef(&lease.Host{Env: &e.Env, Leases: l, Work: w}),
		env:     e,
		granter: &granter{e, w},
		leases:  l,
		events:  es,
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
	s.env.Telemetry.State(holdfast.Closed, holdfast.Connected)
	s.unwatchClient = context.AfterFunc(s.env.Client.Ctx(), func() { // nothing else can renew the latest lease
		s.leases.Lease().Lose(holdfast.CauseClientClosed, holdfast.ErrClientClosed)
	})
	s.work.Go(func(context.Context) { s.run(first) })
	s.work.Go(s.env.warnOfOldServers)
}

// run keeps one lease after the other alive until no further one will follow. This loop is the session's life.
func (s *Session) run(first *lease.Lease) {
	defer close(s.ended)
	for k := s.keeperOf(first); k != nil; k = s.next() {
		k.keep()
		// Beside what follows: the next lease does not wait for the margin of the lost one. After Close nothing runs.
		s.work.Go(func(ctx context.Context) { s.granter.revokeLost(ctx, k.lease) })
	}
}

// keeperOf returns the keeper of a lease, and starts the watches of its session key.
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
	l, err := s.granter.await(s.env.Context, func(err error) error {
		switch {
		case s.env.clientClosed():
			return err
		case etcderr.Classify(err) == etcderr.Unauthorized || errors.Is(err, rpctypes.ErrNoSpace): // until someone acts
			s.leases.refuse(err)
		}
		return retry.Again(err)
	})
	if err != nil {
		return nil // closed
	}
	if !s.leases.install(l) { // Close has begun, and ends the previous lease alone
		s.granter.drop(s.env.Context, l)
		return nil
	}
	if s.env.clientClosed() { // perhaps since the last reply: the AfterFunc of start has run once
		l.Lose(holdfast.CauseClientClosed, holdfast.ErrClientClosed)
	}
	k := s.keeperOf(l)
	s.events.publish(Event{State: holdfast.Connected, Previous: holdfast.Lost, Lease: l.ID()})
	return k
}

// State returns the state now.
func (s *Session) State() holdfast.State { return s.leases.State() }

// Check judges the session now, by the clock and without an RPC, so it is right even after a pause. It returns nil,
// holdfast.ErrSuspended, a *holdfast.LostError (until there is a new lease), or holdfast.ErrClosed.
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

// Remaining returns how long the latest lease is trusted without a further renewal; 0 when lost or closed.
func (s *Session) Remaining() time.Duration {
	if s.env.Context.Err() != nil {
		return 0
	}
	return s.leases.Lease().Remaining()
}

// Lease returns the ID of the latest lease, even if it is lost.
func (s *Session) Lease() clientv3.LeaseID { return s.leases.Lease().ID() }

// Client returns the etcd client of the session.
func (s *Session) Client() *clientv3.Client { return s.env.Client }

// Namespace returns the namespace in use.
func (s *Session) Namespace() string { return s.env.Namespace }

// Logger returns the logger in use.
func (s *Session) Logger() *slog.Logger { return s.env.Logger }

// env has what stays the same as long as a session lives. All parts of the session have it.
type env struct {
	lease.Env
	opts     Options          // with the defaults
	streams  *grpc.ClientConn // for watches of session keys; nil: the client's Watcher is used
	observer func(lease.Step) // see lease.Observe
}

func (o Options) identity() layout.Identity {
	if o.Anonymous {
		return layout.Identity{Owner: o.Owner}
	}
	host, _ := os.Hostname() // unknown is as good as empty here
	pid := os.Getpid()
	return layout.Identity{Owner: cmp.Or(o.Owner, fmt.Sprintf("%s:%d", host, pid)), Host: host, PID: pid}
}

// clientClosed reports whether the etcd client is closed.
func (e *env) clientClosed() bool { return e.Client.Ctx().Err() != nil }

// ref is an alias, so the field of Session is not exported.
type ref = lease.Ref
