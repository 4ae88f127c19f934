package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
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
// holdfast.ErrClientClosed (entries may stay until etcd expires the lease, and their claims for up to 20 TTL, 300 s at
// least), *CallbackError. Later calls wait for the same end.
func (s *Session) Close(ctx context.Context) error {
	if ctx == nil {
		return &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	l, first := s.leases.close()
	if first {
		s.work.close()
		state := s.State()
		s.cancel()
		l.Lose(holdfast.CauseClosed, nil)
		s.events.publish(Event{State: holdfast.Closed, Previous: state, Lease: l.ID(), Err: holdfast.ErrClosed})
		go s.finish(l) // bounded by CloseTimeout, then joins; ends by closing s.done
	}
	patience, cancel := s.work.Detached(ctx)
	defer cancel()
	waitFor(s.done, patience)
	if errors.Is(context.Cause(patience), holdfast.ErrClosed) { // ctx comes from a lock, which this has ended
		patience, cancel = s.work.Detached(ctx)
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
	if stuck := s.stuck(); len(stuck.Callbacks) > 0 {
		return errors.Join(s.revokeErr, stuck)
	}
	return s.revokeErr
}

func (s *Session) finish(l *lease.Lease) {
	defer close(s.done)
	defer s.unwatchClient()
	ctx, cancel := context.WithTimeout(context.Background(), s.env.opts.CloseTimeout)
	defer cancel()
	if p, err := s.granter.endLease(ctx, l); err != nil {
		s.revokeErr = fmt.Errorf("holdfast: %s: %w", p.stands(l, s.env.opts), err)
	}
	go func() { // joined below, unless a callback never returns
		defer close(s.joined)
		s.work.wait()
	}()
	grace, cancelGrace := context.WithTimeout(context.WithoutCancel(ctx), joinGrace)
	defer cancelGrace()
	waitFor(s.joined, ctx, grace)
	s.events.wait(ctx)
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

// stuck returns an error that names the callbacks that have not returned.
func (s *Session) stuck() *CallbackError {
	stuck := &CallbackError{Waited: s.env.opts.CloseTimeout}
	select {
	case <-s.joined:
	default:
		stuck.Callbacks = append(stuck.Callbacks, "an audit.Auditor, OnWait or Retry.Notify")
	}
	stuck.Callbacks = append(stuck.Callbacks, s.events.stuck()...)
	return stuck
}
