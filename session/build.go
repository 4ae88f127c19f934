package session

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/backoff"
)

// This file is what locks and elections are built with; a primitive of your
// own needs the same few things.

// Await returns the latest lease once it is not lost: at once if it is
// connected or suspended, otherwise when a new one has followed. It ends with
// ctx's error, with ErrClosed, or, under Options.StayLost, with the *LostError.
func (s *Session) Await(ctx context.Context) (*Lease, error) {
	for {
		s.mu.Lock()
		l, replaced := s.lease, s.replaced
		s.mu.Unlock()
		if s.ctx.Err() != nil {
			return nil, ErrClosed
		}
		if l.Context().Err() == nil {
			return l, nil
		}
		if s.opts.StayLost {
			return nil, l.Lost()
		}
		select {
		case <-replaced:
		case <-s.ctx.Done():
		case <-ctx.Done():
			return nil, backoff.ContextErr(ctx)
		}
	}
}

// Context is done when Close begins. It carries no values: watches made on it
// share one stream.
func (s *Session) Context() context.Context { return s.ctx }

// Go runs f on a goroutine that Close joins. f must return soon after its
// context, the session's, is done. Go reports false, and runs nothing, once
// the session is closed.
func (s *Session) Go(f func(ctx context.Context)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.running.Go(func() { f(s.ctx) })
	return true
}

// Extension returns what a package keeps per session under key, making it with
// create at the first call. create runs under a lock: it must only build.
func (s *Session) Extension(key any, create func() any) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	ext, ok := s.extensions[key]
	if !ok {
		ext = create()
		s.extensions[key] = ext
	}
	return ext
}

// EpochKey is where the fencing epoch of this namespace is kept.
func (s *Session) EpochKey() string { return s.epochKey() }

// RetryPolicy is the policy in force; its Attempt, which bounds a single RPC, is
// set.
func (s *Session) RetryPolicy() backoff.Policy { return s.opts.Retry }

// Clock is the clock in force.
func (s *Session) Clock() Clock { return s.opts.Clock }

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

// Detached returns the context for finishing what a caller began: while ctx
// lives it ends with ctx; if ctx was dead to begin with, after
// Options.CloseTimeout. Either way it keeps ctx's values.
func (s *Session) Detached(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(context.WithoutCancel(ctx), s.opts.CloseTimeout)
}

// Cluster is the ID of the etcd cluster the latest lease was granted by.
func (s *Session) Cluster() uint64 { return s.latest().cluster }
