package session

import (
	"context"
	"errors"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// leases knows the latest lease, and wakes those who wait for the next. lease.Leases has the contract of its exported
// methods.
type leases struct {
	*env

	mu       sync.Mutex    // protects what follows
	latest   *lease.Lease  // never nil once New has returned
	refused  error         // why etcd refuses another lease; nil if it does not
	replaced chan struct{} // closed when another lease follows, or is refused
	closed   bool          // none will follow
}

func (ls *leases) Lease() *lease.Lease {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.latest
}

func (ls *leases) Check() error {
	if ls.Context.Err() != nil {
		return holdfast.ErrClosed
	}
	return ls.Lease().Check()
}

func (ls *leases) State() holdfast.State {
	switch err := ls.Check(); {
	case err == nil:
		return holdfast.Connected
	case errors.Is(err, holdfast.ErrSuspended):
		return holdfast.Suspended
	case errors.Is(err, holdfast.ErrClosed):
		return holdfast.Closed
	default:
		return holdfast.Lost
	}
}

// install makes next the latest lease. It reports false if the session was closed meanwhile.
func (ls *leases) install(next *lease.Lease) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return false
	}
	ls.latest, ls.refused = next, nil
	ls.wakeLocked()
	return true
}

// refuse tells callers of Await that a new lease is refused. The session keeps trying: roles get repaired, and alarms
// disarmed.
func (ls *leases) refuse(err error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.refused = err
	ls.wakeLocked()
}

func (ls *leases) wakeLocked() {
	close(ls.replaced)
	ls.replaced = make(chan struct{})
}

// close makes the latest lease the last, and returns it. It reports whether this is the first call.
func (ls *leases) close() (last *lease.Lease, first bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	first, ls.closed = !ls.closed, true
	return ls.latest, first
}

func (ls *leases) Await(ctx context.Context) (*lease.Lease, error) {
	for woken := false; ; woken = true {
		ls.mu.Lock()
		l, replaced, refused := ls.latest, ls.replaced, ls.refused
		ls.mu.Unlock()
		if ls.Context.Err() != nil {
			return nil, holdfast.ErrClosed
		}
		if l.Context().Err() == nil {
			return l, nil
		}
		if err := ls.endedErr(l); err != nil {
			return nil, err
		}
		if woken && refused != nil { // since the call began: roles may have been repaired before
			return nil, fmt.Errorf("no new lease: %w", refused)
		}
		select {
		case <-replaced:
		case <-ls.Client.Ctx().Done():
		case <-ls.Context.Done():
		case <-ctx.Done():
			return nil, retry.ContextErr(ctx)
		}
	}
}

// endedErr returns why no lease will follow the lost lease l, or nil.
func (ls *leases) endedErr(l *lease.Lease) error {
	lost := l.Lost()
	switch {
	case ls.clientClosed() && lost.Cause != holdfast.CauseClientClosed:
		return fmt.Errorf("%w; before, %w", holdfast.ErrClientClosed, lost)
	case ls.clientClosed() || ls.opts.StayLost:
		return lost
	}
	return nil
}

func (ls *leases) LeaseGone(ctx context.Context, l *lease.Lease, err error) {
	ls.keyOf(l).gone(ctx, err)
}

func (ls *leases) PutSessionKey(ctx context.Context, l *lease.Lease) (int64, error) {
	put, err := ls.keyOf(l).put(ctx, requests.Read)
	if err != nil {
		return 0, err
	}
	return put.Header.Revision, nil
}

func (ls *leases) Renew(ctx context.Context, id clientv3.LeaseID) error {
	return ls.renewUnproved(ctx, requests.Write, id)
}
