package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
)

// joinGrace is the least time for which Close waits for the session's goroutines after the lease has ended. Unless they
// are in a callback, they end with the session.
const joinGrace = time.Second

// CallbackError names the callbacks that had not returned when Close stopped waiting for them. Everything else is
// closed. A callback that calls Close gets a CallbackError that names itself.
type CallbackError struct {
	Callbacks []string      // each by its name and place in the source
	Waited    time.Duration // at most: Options.CloseTimeout
}

func (e *CallbackError) Error() string {
	return fmt.Sprintf("callback still running (Close waits %v for it; see Options.CloseTimeout): %s",
		e.Waited, strings.Join(e.Callbacks, ", "))
}

// Close cancels the contexts of the session's locks and terms (cause *holdfast.LostError with holdfast.CauseClosed),
// removes its entries from etcd, revokes the lease, and joins every goroutine and callback. It does not wait for work
// under a lock.
//
// Close returns when ctx ends. If ctx is dead, or is the context of a lock, which Close ends, it returns after
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
		state := s.State() // before cancel, from which on it is Closed
		s.cancel()
		l.Lose(holdfast.CauseClosed, nil) // before anything is sent: no work may believe that it still holds
		s.events.publish(Event{State: holdfast.Closed, Previous: state, Lease: l.ID(), Err: holdfast.ErrClosed})
		go s.finish(l) // bounded by CloseTimeout, then joins; ends by closing s.done
	}
	patience, cancel := s.work.Detached(ctx)
	defer cancel()
	waitFor(s.done, patience)
	if errors.Is(context.Cause(patience), holdfast.ErrClosed) { // ctx comes from a lock, and this call has ended it
		patience, cancel = s.work.Detached(ctx)
		defer cancel()
		waitFor(s.done, patience)
	}
	done, joined := isClosed(s.done), isClosed(s.joined) // each is closed after revokeErr is set
	switch stuck := s.stuck(); {
	case (done || joined) && len(stuck.Callbacks) == 0:
		return s.revokeErr
	case done:
		return errors.Join(s.revokeErr, stuck)
	case joined:
		err := fmt.Errorf("holdfast: session of lease %x: %w: %w", int64(l.ID()), context.Cause(patience), stuck)
		return errors.Join(s.revokeErr, err)
	}
	return fmt.Errorf("holdfast: session of lease %x is not closed yet: %w: %w",
		int64(l.ID()), holdfast.ErrOutcomeUnknown, context.Cause(patience))
}

// finish ends the lease, and joins what runs on the session.
func (s *Session) finish(l *lease.Lease) {
	defer close(s.done)
	defer s.unwatchClient()
	ctx, cancel := context.WithTimeout(context.Background(), s.env.opts.CloseTimeout)
	defer cancel()
	if err := s.granter.endLease(ctx, l); err != nil {
		s.revokeErr = fmt.Errorf("holdfast: session closed: %w", err)
	}
	go func() { // joined below, unless a callback never returns
		defer close(s.joined)
		s.work.running.Wait()
	}()
	grace, cancelGrace := context.WithTimeout(context.WithoutCancel(ctx), joinGrace)
	defer cancelGrace()
	waitFor(s.joined, ctx, grace)
	s.events.wait(ctx)
}

// stuck returns an error with the names of the callbacks that have not returned.
func (s *Session) stuck() *CallbackError {
	stuck := &CallbackError{Waited: s.env.opts.CloseTimeout, Callbacks: s.events.stuck()}
	if !isClosed(s.joined) {
		stuck.Callbacks = append(stuck.Callbacks, "a goroutine, perhaps in an audit.Auditor, OnWait or a handler of the log")
	}
	return stuck
}

// waitFor waits until c is closed, or until all of the contexts have ended.
func waitFor(c <-chan struct{}, until ...context.Context) {
	for _, ctx := range until {
		select {
		case <-c:
			return
		case <-ctx.Done():
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// work runs the goroutines of a session and of its locks, and keeps what locks store in it. Close joins it. lease.Work
// has the contract of its exported methods.
type work struct {
	*env

	mu         sync.Mutex // protects what follows
	closed     bool
	running    sync.WaitGroup // Add only while !closed
	extensions map[any]any

	hooksMu sync.Mutex // protects hooks: an extension registers them while it is made, under mu
	hooks   []func(ctx context.Context, l *lease.Lease)
}

func (w *work) Go(f func(ctx context.Context)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.running.Go(func() { f(w.Context) })
	return true
}

func (w *work) Joining() (done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return func() {}
	}
	w.running.Add(1)
	return w.running.Done
}

// close makes Go and Joining refuse what begins later.
func (w *work) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

func (w *work) Extension(key any, create func() any) any {
	w.mu.Lock()
	defer w.mu.Unlock()
	ext, ok := w.extensions[key]
	if !ok {
		ext = create()
		w.extensions[key] = ext
	}
	return ext
}

func (w *work) BeforeRevoke(hook func(ctx context.Context, l *lease.Lease)) {
	w.hooksMu.Lock()
	defer w.hooksMu.Unlock()
	w.hooks = append(w.hooks, hook)
}

// beforeRevoke runs the hooks before l is revoked.
func (w *work) beforeRevoke(ctx context.Context, l *lease.Lease) {
	if lost := l.Lost(); lost == nil || lost.Cause == holdfast.CauseRevoked || lost.Cause == holdfast.CauseClusterChanged {
		return // never used; gone with its entries; or of another cluster
	}
	w.hooksMu.Lock()
	hooks := w.hooks
	w.hooksMu.Unlock()
	// A hook that hangs leaves half of CloseTimeout, at least, for the revocation.
	ctx, cancel := context.WithTimeout(ctx, min(w.opts.CloseTimeout, requests.Patience)/2)
	defer cancel()
	for _, hook := range slices.Backward(hooks) {
		hook(ctx, l)
	}
}

func (w *work) Detached(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), w.opts.CloseTimeout)
}
