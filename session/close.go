package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
)

// joinGrace is how long Close waits for the goroutines of the session, at least,
// once the lease has ended: all that was under way ends with the session, unless
// it is in a callback.
const joinGrace = time.Second

// Close ends every handle of the session (they are told first: *holdfast.LostError with
// holdfast.CauseClosed), takes its entries out of etcd, revokes the lease, and joins
// every goroutine and callback. It does not wait for users' work that is still
// running under a lock: release first what must be released in order.
//
// With a live ctx it returns when that ends, with a dead one after
// Options.CloseTimeout; what is under way is finished or given up within
// CloseTimeout in the background. Idempotent: later calls wait for the same
// end.
//
// nil: all is revoked and joined. An error that Is holdfast.ErrOutcomeUnknown: the
// revocation was not answered; entries stay until etcd expires the lease. One
// that Is holdfast.ErrClientClosed: the client was closed before, so they stay likewise. A
// *CallbackError: callbacks have not returned within CloseTimeout. So Close may be
// called from a callback, and returns that error then.
func (s *Session) Close(ctx context.Context) error {
	if ctx == nil {
		return &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	s.mu.Lock()
	first := !s.closing
	s.closing = true
	l := s.lease
	s.mu.Unlock()
	if first {
		state := s.State()
		s.cancel()
		l.Lose(holdfast.CauseClosed, nil)
		s.publish(Event{State: holdfast.Closed, Previous: state, Lease: l.id, Err: holdfast.ErrClosed})
		go s.finish(l) // bounded by CloseTimeout, then joins; ends by closing s.done
	}
	ctx, cancel := s.Base().Detached(ctx)
	defer cancel()
	select {
	case <-s.done:
		return s.closeErr()
	case <-ctx.Done():
	}
	select {
	case <-s.joined:
		return fmt.Errorf("holdfast: session of lease %x: %w: %w", int64(l.id), context.Cause(ctx), s.stuck())
	default:
		return fmt.Errorf("holdfast: session of lease %x is not closed yet: %w: %w",
			int64(l.id), holdfast.ErrOutcomeUnknown, context.Cause(ctx))
	}
}

// closeErr is what Close returns when all is done, or was given up.
func (s *Session) closeErr() error {
	s.mu.Lock()
	err := s.revokeErr
	s.mu.Unlock()
	if stuck := s.stuck(); len(stuck.Callbacks) > 0 {
		return errors.Join(err, stuck)
	}
	return err
}

func (s *Session) finish(l *Lease) {
	defer close(s.done)
	defer s.unwatchClient()
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.CloseTimeout)
	defer cancel()
	if err := s.endLease(ctx, l); err != nil {
		s.mu.Lock()
		s.revokeErr = fmt.Errorf("holdfast: lease %x was not revoked, its entries stay until etcd expires it (TTL %v): %w",
			int64(l.id), l.ttl, err)
		s.mu.Unlock()
	}
	go func() { // joined below, unless a callback never returns
		defer close(s.joined)
		s.running.Wait()
		s.sender.Wait()
	}()
	grace, cancelGrace := context.WithTimeout(context.WithoutCancel(ctx), joinGrace)
	defer cancelGrace()
	waitFor(s.joined, ctx, grace)
	for _, sub := range s.subscribers() {
		waitFor(sub.wait(), ctx)
	}
}

// waitFor returns when c is closed, or when all of the contexts have ended.
func waitFor(c <-chan struct{}, until ...context.Context) {
	for _, ctx := range until {
		select {
		case <-c:
			return
		case <-ctx.Done():
		}
	}
}

// endLease runs the hooks and revokes l, which removes what they have left. It
// returns nil if there is no such lease any more.
func (s *Session) endLease(ctx context.Context, l *Lease) error {
	policy := s.opts.Retry
	policy.Attempt = 0 // hooks and requests are bounded each
	err := backoff.Retry(ctx, policy, func(ctx context.Context) error {
		if s.clientClosed() {
			return backoff.Final(holdfast.ErrClientClosed)
		}
		s.beforeRevoke(ctx, l)
		return s.revokeOnce(ctx, l.id)
	})
	if backoff.Pending(err) && !errors.Is(err, holdfast.ErrClientClosed) {
		return fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
	}
	return err
}

// hooks are what BeforeRevoke was given.
type hooks struct {
	sync.Mutex
	list []func(ctx context.Context, l *Lease)
}

func (s *Session) beforeRevoke(ctx context.Context, l *Lease) {
	if lost := l.Lost(); lost == nil || lost.Cause == holdfast.CauseRevoked || lost.Cause == holdfast.CauseClusterChanged {
		return // never used, gone with its entries, or elsewhere
	}
	s.hooks.Lock()
	list := s.hooks.list
	s.hooks.Unlock()
	ctx, cancel := context.WithTimeout(ctx, min(s.opts.CloseTimeout, s.opts.Retry.Attempt)/2)
	defer cancel()
	for _, hook := range list {
		hook(ctx, l)
	}
}

func (s *Session) subscribers() []*subscriber {
	s.mu.Lock()
	defer s.mu.Unlock()
	subs := make([]*subscriber, 0, len(s.subs))
	for sub := range s.subs {
		subs = append(subs, sub)
	}
	return subs
}

// stuck names the callbacks that have not returned.
func (s *Session) stuck() *CallbackError {
	stuck := &CallbackError{Waited: s.opts.CloseTimeout}
	select {
	case <-s.joined:
	default:
		stuck.Callbacks = append(stuck.Callbacks, "a audit.Auditor or Retry.Notify")
	}
	for _, sub := range s.subscribers() {
		select {
		case <-sub.wait():
		default:
			stuck.Callbacks = append(stuck.Callbacks, sub.name())
		}
	}
	return stuck
}
