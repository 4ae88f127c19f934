package session

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// host is a session as locks and elections see it. The contract of its methods is at lease.Host.
type host struct{ *Session }

var _ lease.Host = host{}

// Ref is of use only to packages of this module.
func (s *Session) Ref() lease.Ref {
	if s == nil {
		return lease.Ref{}
	}
	return lease.NewRef(host{s})
}

func (h host) Await(ctx context.Context) (*lease.Lease, error) {
	s := h.Session
	known := -1 // refusals when the call began; roles may have been repaired since
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
		if err := s.endedErr(l); err != nil {
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

func (h host) Lease() *lease.Lease { return h.latest() }

func (h host) Context() context.Context { return h.ctx }

func (h host) Go(f func(ctx context.Context)) bool {
	s := h.Session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.running.Go(func() { f(s.ctx) })
	return true
}

func (h host) BeforeRevoke(hook func(ctx context.Context, l *lease.Lease)) {
	h.hooks.Lock()
	defer h.hooks.Unlock()
	h.hooks.list = append(h.hooks.list, hook)
}

func (h host) Joining() (done func()) {
	s := h.Session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return func() {}
	}
	s.running.Add(1)
	return s.running.Done
}

func (h host) Extension(key any, create func() any) any {
	h.mu.Lock()
	defer h.mu.Unlock()
	ext, ok := h.extensions[key]
	if !ok {
		ext = create()
		h.extensions[key] = ext
	}
	return ext
}

func (h host) EpochKey() string { return names.EpochKey(h.opts.Namespace) }

func (h host) RetryPolicy() backoff.Policy { return h.opts.Retry }

func (h host) Sender() *attempt.Sender { return h.sender }

func (h host) Clock() func() time.Duration { return h.opts.Clock }

func (h host) Telemetry() *telemetry.Telemetry { return h.telemetry }

func (h host) Detached(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), h.opts.CloseTimeout)
}

func (h host) Cluster() uint64 { return h.latest().Cluster() }

func (h host) LockDelay() time.Duration { return h.opts.LockDelay }

func (h host) TrailingSlash() bool { return h.opts.TrailingSlash }

func (h host) Identity() layout.Identity { return h.identity }
