package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// Session keeps one lease alive, tells what becomes of it, and after a loss
// gets another. It is safe for concurrent use and meant to be shared: renewal
// traffic does not grow with the locks held. See the package doc for states
// and guarantees.
type Session struct {
	client    *clientv3.Client
	opts      Options
	telemetry *telemetry.Telemetry
	sender    *attempt.Sender
	identity  Identity
	keyValue  string // of session keys

	ctx    context.Context // until Close
	cancel context.CancelFunc
	joined chan struct{} // closed when Close has ended the lease and joined the goroutines
	done   chan struct{} // closed when Close has finished

	unwatchClient func() bool
	hooks         hooks

	mu         sync.Mutex     // protects what follows
	lease      *Lease         // the latest
	refused    error          // why etcd refused another when last asked; nil: it did not
	refusals   int            // how often it did
	replaced   chan struct{}  // closed when another lease follows, or is refused
	told       holdfast.State // by the last event; Close and the watchdog may differ on what came before
	closing    bool
	revokeErr  error
	subs       map[*subscriber]struct{}
	extensions map[any]any
	running    sync.WaitGroup // goroutines started by Go; Add only while !closing
}

// New obtains a lease and starts to keep it. A nil opts means all defaults;
// ctx bounds New only. Close the session when it is no longer needed.
//
// The session uses cli's KV, Lease and Watcher, never closes it, and respects
// its TLS and auth. Errors: *holdfast.ArgumentError and *holdfast.NameError before anything is
// sent; otherwise what etcd said, joined with ctx's error when that ended the
// attempts; backoff.ErrNotConnected, with the reason, when the client could not
// connect. It tries to until ctx ends, so give it one that does. holdfast.ErrClientClosed.
// rpctypes.ErrPermissionDenied when the session key may not be written: the
// message has the command that grants it. Nothing is left to close, and no lease
// left in an etcd that answers, when err is not nil.
func New(ctx context.Context, cli *clientv3.Client, opts *Options) (*Session, error) {
	if ctx == nil {
		return nil, &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	if cli == nil || cli.KV == nil || cli.Lease == nil || cli.Watcher == nil {
		return nil, &holdfast.ArgumentError{Argument: "cli", Reason: "is nil, or lacks its KV, Lease or Watcher"}
	}
	resolved, err := opts.resolved()
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
		replaced:   make(chan struct{}),
		subs:       make(map[*subscriber]struct{}),
		extensions: make(map[any]any),
	}
	s.keyValue = sessionValue(s.identity)
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
	s.Base().Go(func(context.Context) { s.run(l) }) // joined by Close
	s.Base().Go(func(context.Context) { s.watchSessionKey(l) })
	s.Base().Go(s.warnOfOldServers)
	return s, nil
}

// State is the state judged now.
func (s *Session) State() holdfast.State {
	switch err := s.Check(); {
	case err == nil:
		return holdfast.Connected
	case errors.Is(err, holdfast.ErrSuspended):
		return holdfast.Suspended
	case err == holdfast.ErrClosed:
		return holdfast.Closed
	default:
		return holdfast.Lost
	}
}

// Check judges the session now, without an RPC: nil, holdfast.ErrSuspended, a
// *holdfast.LostError (until a new lease has followed), or holdfast.ErrClosed.
func (s *Session) Check() error {
	if s.ctx.Err() != nil {
		return holdfast.ErrClosed
	}
	return s.latest().Check()
}

// Remaining is the time until the latest lease is no longer trusted unless a
// renewal is confirmed; 0 when lost or closed.
func (s *Session) Remaining() time.Duration {
	if s.ctx.Err() != nil {
		return 0
	}
	return s.latest().remaining()
}

// TrustedUntil is Remaining on the wall clock, for display: a wall clock
// jumps, so decide by Check.
func (s *Session) TrustedUntil() time.Time { return time.Now().Add(s.Remaining()) }

// Lease is the ID of the latest lease, even when it is lost; never 0.
func (s *Session) Lease() clientv3.LeaseID { return s.latest().id }

// Unconfirmed is how old the proof is that the latest lease lives: the time
// since the last confirmed renewal was sent. After a loss it grows on until a
// new lease has followed.
func (s *Session) Unconfirmed() time.Duration {
	l := s.latest()
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return now - l.confirmed
}

// Subscribe has fn told every change of state from now on: one at a time, in
// order, on a goroutine of its own. A slow fn delays nothing but itself; when
// 64 events wait for it the oldest that ends nothing is dropped. A panic in fn
// is recovered and logged. After cancel no further call begins; cancel does
// not wait, so it may be called from within fn.
func (s *Session) Subscribe(fn func(Event)) (cancel func()) {
	if fn == nil {
		return func() {}
	}
	sub := &subscriber{fn: fn, log: s.opts.Logger}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return func() {}
	}
	s.subs[sub] = struct{}{}
	return func() {
		sub.stop()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pruneLocked()
	}
}

// pruneLocked forgets the subscribers that were cancelled, but for those whose
// last call is still running: Close has to join it.
func (s *Session) pruneLocked() {
	for sub := range s.subs {
		if sub.over() {
			delete(s.subs, sub)
		}
	}
}

func (s *Session) latest() *Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease
}

// install makes next the latest lease; false if the session was closed
// meanwhile.
func (s *Session) install(next *Lease) bool {
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
	s.Base().Go(func(context.Context) { s.watchSessionKey(next) })
	s.publish(Event{State: holdfast.Connected, Previous: holdfast.Lost, Lease: next.id})
	return true
}

// dropLease revokes a lease other than the latest once Close has begun. s.ctx
// is done, so it takes a bound of its own.
func (s *Session) dropLease(l *Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.CloseTimeout)
	defer cancel()
	s.revoke(ctx, l)
}

func (s *Session) tellLost(l *Lease, last holdfast.State) {
	lost := l.Lost()
	s.publish(Event{State: holdfast.Lost, Previous: last, Lease: l.id, Err: lost})
	s.opts.Logger.Warn("holdfast: session lost; locks and terms on its lease are gone",
		"lease", fmt.Sprintf("%x", int64(l.id)), "cause", lost.Cause.String(), "since_last_renewal", lost.Since, "error", lost)
	s.telemetry.SessionLost(lost.Cause.String(), lost.Since)
}

func (s *Session) publish(ev Event) {
	ev.At = time.Now()
	s.mu.Lock()
	if s.told == holdfast.Closed {
		s.mu.Unlock()
		return // a loss, or a new lease, that Close has overtaken: its event is the last
	}
	s.pruneLocked()
	for sub := range s.subs {
		sub.tell(ev) // queues, calls nobody
	}
	previous := s.told
	s.told = ev.State
	s.mu.Unlock()
	s.telemetry.State(stateLabel(previous), stateLabel(ev.State))
}

// Client is the etcd client the session was made with.
func (s *Session) Client() *clientv3.Client { return s.client }

// Namespace is the namespace in force.
func (s *Session) Namespace() string { return s.opts.Namespace }

// Logger is the logger in force.
func (s *Session) Logger() *slog.Logger { return s.opts.Logger }
