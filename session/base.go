package session

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// Base is what locks and elections are built on; a primitive of your own needs
// the same few things. Users of locks and elections do not meet it.
type Base struct{ s *Session }

// Base returns what primitives are built on.
func (s *Session) Base() Base { return Base{s} }

// Await returns the latest lease once it is not lost: at once if it is
// connected or suspended, otherwise when a new one has followed. It ends with
// ctx's error, with holdfast.ErrClosed, with holdfast.ErrClientClosed, under Options.StayLost with
// the *holdfast.LostError, and where permission for a new lease is refused with that error.
func (b Base) Await(ctx context.Context) (*Lease, error) {
	s := b.s
	known := -1 // refusals when the call began: roles may have been mended since
	for {
		s.mu.Lock()
		l, replaced, refused, refusals := s.lease, s.replaced, s.refused, s.refusals
		s.mu.Unlock()
		if known < 0 {
			known = refusals
		}
		if s.ctx.Err() != nil {
			return nil, holdfast.ErrClosed
		}
		if l.Context().Err() == nil {
			return l, nil
		}
		if err := s.noneFollows(l); err != nil {
			return nil, err
		}
		if refusals > known {
			return nil, fmt.Errorf("no new lease: %w", refused)
		}
		select {
		case <-replaced:
		case <-s.clientDone():
		case <-s.ctx.Done():
		case <-ctx.Done():
			return nil, backoff.ContextErr(ctx)
		}
	}
}

// Lease is the latest lease, which may be lost.
func (b Base) Lease() *Lease { return b.s.latest() }

// Context is done when Close begins. It carries no values: watches made on it
// share one stream.
func (b Base) Context() context.Context { return b.s.ctx }

// Go runs f on a goroutine that Close joins. f must return soon after its
// context, the session's, is done. Go reports false, and runs nothing, once
// the session is closed.
func (b Base) Go(f func(ctx context.Context)) bool {
	s := b.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.running.Go(func() { f(s.ctx) })
	return true
}

// BeforeRevoke has hook run each time the session is about to revoke a lease that
// may still live: at Close, and after it gave the lease up by its own clock.
//
// By then l is lost, so every Check on it says so, but what AfterFunc runs for
// that may be under way. ctx is of neither the lease nor the session, so requests
// can be sent on it; it ends after half of CloseTimeout, or of Retry.Attempt if
// that is less, and the revocation follows in any case. Hooks run one
// after another, in order of registration, and again if the revocation has to be
// repeated: then they do what is left. At Close, Go refuses by then.
func (b Base) BeforeRevoke(hook func(ctx context.Context, l *Lease)) {
	b.s.hooks.Lock()
	defer b.s.hooks.Unlock()
	b.s.hooks.list = append(b.s.hooks.list, hook)
}

// Joining has Close wait until done is called, as for what Go runs. done must be
// called, once, soon after the latest lease of that time is lost, which is how
// Close begins. Once the session is closed nothing waits for it.
func (b Base) Joining() (done func()) {
	s := b.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return func() {}
	}
	s.running.Add(1)
	return s.running.Done
}

// Extension returns what a package keeps per session under key, making it with
// create at the first call. create runs under a lock: it must only build.
func (b Base) Extension(key any, create func() any) any {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	ext, ok := b.s.extensions[key]
	if !ok {
		ext = create()
		b.s.extensions[key] = ext
	}
	return ext
}

// EpochKey is where the fencing epoch of this namespace is kept. It is read
// with every acquisition and to confirm renewals.
func (b Base) EpochKey() string { return names.EpochKey(b.s.opts.Namespace) }

// RetryPolicy is the policy in force; its Attempt, which bounds a single RPC, is
// set.
func (b Base) RetryPolicy() backoff.Policy { return b.s.opts.Retry }

// Sender sends requests that may be repeated.
func (b Base) Sender() *attempt.Sender { return b.s.sender }

// Clock is the clock in force.
func (b Base) Clock() Clock { return b.s.opts.Clock }

// Telemetry is whom to report to.
func (b Base) Telemetry() *telemetry.Telemetry { return b.s.telemetry }

// Detached returns the context for finishing what a caller began: while ctx
// lives it ends with ctx; if ctx was dead to begin with, after
// Options.CloseTimeout. Either way it keeps ctx's values.
func (b Base) Detached(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), b.s.opts.CloseTimeout)
}

// Cluster is the ID of the etcd cluster the latest lease was granted by.
func (b Base) Cluster() uint64 { return b.s.latest().cluster }
