package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// joinGrace is the least time that Close waits for the session's goroutines after the lease has ended. Unless they
// are in a callback, they end with the session.
const joinGrace = time.Second

// Close cancels the contexts of the session's locks and terms (cause *holdfast.LostError with holdfast.CauseClosed),
// removes its entries from etcd, revokes the lease, and joins every goroutine and callback. It does not wait for work
// under a lock.
//
// Close returns when ctx ends; if ctx is already dead or, as the context of a lock, ends with the session, after
// Options.CloseTimeout. The rest ends in the background within CloseTimeout. Errors: holdfast.ErrOutcomeUnknown and
// holdfast.ErrClientClosed (entries may stay until etcd expires the lease), *CallbackError. Later calls wait for the
// same end.
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
		s.publish(Event{State: holdfast.Closed, Previous: state, Lease: l.ID(), Err: holdfast.ErrClosed})
		go s.finish(l) // bounded by CloseTimeout, then joins; ends by closing s.done
	}
	patience, cancel := host{s}.Detached(ctx)
	defer cancel()
	waitFor(s.done, patience)
	if errors.Is(context.Cause(patience), holdfast.ErrClosed) { // ctx comes from a lock, which this has ended
		patience, cancel = host{s}.Detached(ctx)
		defer cancel()
		waitFor(s.done, patience)
	}
	select {
	case <-s.done:
		return s.closeErr()
	default:
	}
	select {
	case <-s.joined:
		return fmt.Errorf("holdfast: session of lease %x: %w: %w", int64(l.ID()), context.Cause(patience), s.stuck())
	default:
		return fmt.Errorf("holdfast: session of lease %x is not closed yet: %w: %w",
			int64(l.ID()), holdfast.ErrOutcomeUnknown, context.Cause(patience))
	}
}

// closeErr is the result of Close when everything is done or given up.
func (s *Session) closeErr() error {
	s.mu.Lock()
	err := s.revokeErr
	s.mu.Unlock()
	if stuck := s.stuck(); len(stuck.Callbacks) > 0 {
		return errors.Join(err, stuck)
	}
	return err
}

func (s *Session) finish(l *lease.Lease) {
	defer close(s.done)
	defer s.unwatchClient()
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.CloseTimeout)
	defer cancel()
	if err := s.endLease(ctx, l); err != nil {
		err = fmt.Errorf("holdfast: lease %x was not revoked, its entries stay until etcd expires it (TTL %v): %w",
			int64(l.ID()), l.TTL(), err)
		s.mu.Lock()
		s.revokeErr = err
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
		waitFor(sub.queue.Idle(), ctx)
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

// endLease runs the hooks and revokes l, which deletes the entries that they have left. It returns nil if the lease
// no longer exists.
func (s *Session) endLease(ctx context.Context, l *lease.Lease) error {
	policy := s.opts.Retry
	policy.Attempt = 0 // hooks and requests have timeouts of their own
	err := backoff.Retry(ctx, policy, func(ctx context.Context) error {
		if s.clientClosed() {
			return backoff.Final(holdfast.ErrClientClosed)
		}
		s.beforeRevoke(ctx, l)
		return s.revokeOnce(ctx, l.ID())
	})
	if etcderr.Pending(err) && !errors.Is(err, holdfast.ErrClientClosed) {
		return fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
	}
	return err
}

// hooks are the functions registered with BeforeRevoke.
type hooks struct {
	sync.Mutex
	list []func(ctx context.Context, l *lease.Lease)
}

func (s *Session) beforeRevoke(ctx context.Context, l *lease.Lease) {
	if lost := l.Lost(); lost == nil || lost.Cause == holdfast.CauseRevoked || lost.Cause == holdfast.CauseClusterChanged {
		return // never used; gone with its entries; or of another cluster
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

// stuck returns an error that names the callbacks that have not returned.
func (s *Session) stuck() *CallbackError {
	stuck := &CallbackError{Waited: s.opts.CloseTimeout}
	select {
	case <-s.joined:
	default:
		stuck.Callbacks = append(stuck.Callbacks, "an audit.Auditor, OnWait or Retry.Notify")
	}
	for _, sub := range s.subscribers() {
		select {
		case <-sub.queue.Idle():
		default:
			stuck.Callbacks = append(stuck.Callbacks, sub.name)
		}
	}
	return stuck
}
