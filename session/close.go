package session

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/backoff"
)

// Close ends every handle of the session (they are told first: *LostError with
// CauseClosed), revokes the lease, which removes all its entries, and joins
// every goroutine and callback. It does not wait for users' work that is still
// running under a lock: release first what must be released in order.
//
// With a live ctx it returns when that ends, with a dead one after
// Options.CloseTimeout; what is under way is finished or given up within
// CloseTimeout in the background. Idempotent: later calls wait for the same
// end.
//
// nil: all is revoked and joined. An error that Is ErrOutcomeUnknown: the
// revocation was not answered; entries stay until etcd expires the lease. A
// callback that has not returned is named in the error.
func (s *Session) Close(ctx context.Context) error {
	if ctx == nil {
		return &ArgumentError{"ctx", "is nil"}
	}
	s.mu.Lock()
	first := !s.closing
	s.closing = true
	l := s.lease
	s.mu.Unlock()
	if first {
		state := s.State()
		s.cancel()
		l.Lose(CauseClosed, nil)
		s.publish(Event{State: Closed, Previous: state, Lease: l.id, Err: ErrClosed})
		go s.finish(l) // bounded by CloseTimeout, then joins; ends by closing s.done
	}
	ctx, cancel := s.Base().Detached(ctx)
	defer cancel()
	select {
	case <-s.done:
	case <-ctx.Done():
		return fmt.Errorf("holdfast: session of lease %x is not closed yet: %w: %w%s",
			int64(l.id), ErrOutcomeUnknown, context.Cause(ctx), s.stuck())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revokeErr
}

func (s *Session) finish(l *Lease) {
	defer close(s.done)
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.CloseTimeout)
	defer cancel()
	err := backoff.Retry(ctx, s.opts.Retry, func(ctx context.Context) error {
		_, err := s.client.Revoke(ctx, l.id)
		return err
	})
	if err != nil && backoff.Classify(err) != backoff.LeaseGone {
		s.mu.Lock()
		s.revokeErr = fmt.Errorf("holdfast: lease %x was not revoked, its entries stay until etcd expires it (TTL %v): %w: %w",
			int64(l.id), l.ttl, ErrOutcomeUnknown, err)
		s.mu.Unlock()
	}
	s.running.Wait()
	s.sender.Wait()
	for _, sub := range s.subscribers() {
		<-sub.wait()
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
func (s *Session) stuck() string {
	var names []string
	for _, sub := range s.subscribers() {
		select {
		case <-sub.wait():
		default:
			names = append(names, sub.name())
		}
	}
	if names == nil {
		return ""
	}
	return "; callback still running: " + strings.Join(names, ", ")
}
