package session

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
)

// maxTrusted caps what any TTL is trusted for: a cluster with lease
// checkpoints switched on may resume a longer lease with less than its TTL.
const maxTrusted = 300 * time.Second

// Lease is the lifetime of one etcd lease, judged from this side. Handles are
// bound to a Lease, never to a Session: what was lost with one lease does not
// come back with the next.
//
// It is for packages that build primitives on a session; users of locks and
// elections do not meet it.
type Lease struct {
	id      clientv3.LeaseID
	ttl     time.Duration // as granted
	margin  time.Duration
	clock   Clock
	ctx     context.Context // done once lost, with the *holdfast.LostError as its cause
	cancel  context.CancelCauseFunc
	renewed chan struct{} // wakes the watchdog after a confirmed renewal
	cluster uint64
	trust   time.Duration      // for how long a renewal is trusted
	surplus []clientv3.LeaseID // granted beside it, to be revoked

	mu        sync.Mutex          // protects what follows
	confirmed time.Duration       // send time of the last confirmed renewal
	trusted   time.Duration       // trusted-until
	lost      *holdfast.LostError // written once
	gate      int64               // mod revision of the session key
	failure   error               // what the last failed renewal said
	connected context.Context
	suspend   context.CancelCauseFunc // ends connected
	changed   chan struct{}           // closed at the next change of state, and at each confirmed renewal
}

// newLease starts judging a lease whose Grant was sent at sent. margin 0 means
// the default for the TTL that was granted.
func newLease(id clientv3.LeaseID, cluster uint64, ttl, margin, sent time.Duration, clock Clock) *Lease {
	if margin == 0 {
		margin = max(ttl/10, 200*time.Millisecond)
	}
	l := &Lease{
		id: id, cluster: cluster, ttl: ttl, margin: margin, clock: clock,
		trust:     min(ttl, maxTrusted) - margin,
		renewed:   make(chan struct{}, 1),
		confirmed: sent,
		changed:   make(chan struct{}),
	}
	l.trusted = sent + l.trust
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.connected, l.suspend = context.WithCancelCause(l.ctx)
	return l
}

// ID is the lease's ID in etcd.
func (l *Lease) ID() clientv3.LeaseID { return l.id }

// Context is done once the lease is lost; its cause is the *holdfast.LostError.
func (l *Lease) Context() context.Context { return l.ctx }

// ConnectedContext is done as soon as the lease is suspended (cause
// holdfast.ErrSuspended) or lost (cause *holdfast.LostError). After a reconnection, ask again.
func (l *Lease) ConnectedContext() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.connected
}

// Check judges the lease now: nil, holdfast.ErrSuspended or a *holdfast.LostError. It reads the
// clock at every call, because the timers that would tell fire late after a
// pause.
//
// Finding that trusted-until has passed, Check makes the loss final before it
// reports it: a renewal that arrives a moment later must not bring back what
// somebody has been told is gone.
func (l *Lease) Check() error {
	now := l.clock()
	l.mu.Lock()
	if l.lost == nil && now < l.trusted {
		suspended := now >= l.suspendAtLocked()
		l.mu.Unlock()
		if suspended {
			return holdfast.ErrSuspended
		}
		return nil
	}
	lost := l.loseLocked(holdfast.CauseExpired, now, nil)
	l.mu.Unlock()
	l.cancel(lost)
	return lost
}

// Lose makes the lease lost, unless it is already, and returns the loss.
func (l *Lease) Lose(cause holdfast.Cause, err error) *holdfast.LostError {
	now := l.clock()
	l.mu.Lock()
	lost := l.loseLocked(cause, now, err)
	l.mu.Unlock()
	l.cancel(lost)
	return lost
}

// Lost is the loss, or nil while there is none. It does not judge: see Check.
func (l *Lease) Lost() *holdfast.LostError {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

func (l *Lease) loseLocked(cause holdfast.Cause, now time.Duration, err error) *holdfast.LostError {
	if l.lost == nil {
		if err == nil && cause == holdfast.CauseExpired {
			err = l.failure
		}
		l.lost = &holdfast.LostError{Lease: holdfast.LeaseID(l.id), Cause: cause, Since: now - l.confirmed, Err: err}
	}
	return l.lost
}

// AwaitConnected waits while the lease is suspended. It returns nil when it is
// connected, the *holdfast.LostError when it is lost, ctx's error when that ends first.
func (l *Lease) AwaitConnected(ctx context.Context) error {
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		if err := l.Check(); !errors.Is(err, holdfast.ErrSuspended) {
			return err
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
		case <-ctx.Done():
			return backoff.ContextErr(ctx)
		}
	}
}

// confirm extends the trust by a renewal that was sent at sent and proved
// afterwards to have reached the true leader. It counts only if the proof
// arrived while the lease was still trusted; otherwise it reports false.
func (l *Lease) confirm(sent, ttl time.Duration) bool {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != nil || now >= l.trusted {
		return false
	}
	l.confirmed = sent
	l.trusted = sent + min(l.ttl, ttl, maxTrusted) - l.margin
	l.failure = nil
	l.reconnectLocked()
	// Whoever waits in AwaitConnected has judged by the clock, and may have seen
	// a suspension that the watchdog, whose timer has not fired yet, never will.
	close(l.changed)
	l.changed = make(chan struct{})
	select {
	case l.renewed <- struct{}{}:
	default: // the watchdog is about to look anyway
	}
	return true
}

// failed remembers why a renewal did not succeed, for the holdfast.LostError.
func (l *Lease) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = err
}

func (l *Lease) lastFailure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure
}

// renewAtLocked is the moment when three eighths of the trusted time have passed
// since the last confirmed renewal, about a third of the TTL. Together with
// suspendAtLocked it leaves an eighth for the renewal, whatever the TTL and the
// margin are.
func (l *Lease) renewAtLocked() time.Duration {
	return l.confirmed + (l.trusted-l.confirmed)*3/8
}

// suspendAtLocked is the moment when half of the trusted time has passed
// without a confirmed renewal. A stalled process is covered by the same rule:
// the clock counts the pause.
func (l *Lease) suspendAtLocked() time.Duration {
	return l.confirmed + (l.trusted-l.confirmed)/2
}

// enter records a change of state that the watchdog has seen.
func (l *Lease) enter(s holdfast.State) {
	l.mu.Lock()
	suspend := l.suspend
	if s == holdfast.Connected {
		l.reconnectLocked()
		suspend = func(error) {}
	}
	close(l.changed)
	l.changed = make(chan struct{})
	l.mu.Unlock()
	suspend(holdfast.ErrSuspended)
}

// reconnectLocked sees to it that the connected context is a live one. A
// confirmed renewal does, too: whoever acts on it before the watchdog has woken
// must not be given a context that the suspension has ended.
func (l *Lease) reconnectLocked() {
	if l.connected.Err() != nil {
		l.connected, l.suspend = context.WithCancelCause(l.ctx)
	}
}

// untilChange is the time to the next moment at which Check changes its
// answer, provided that no renewal is confirmed before.
func (l *Lease) untilChange() time.Duration {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.suspendAtLocked(); now < at {
		return at - now
	}
	return l.trusted - now
}

// untilRenewal is the time to the next renewal; zero or less when it is due.
func (l *Lease) untilRenewal() time.Duration {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewAtLocked() - now
}

// remaining is the time to trusted-until; 0 once lost.
func (l *Lease) remaining() time.Duration {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != nil {
		return 0
	}
	return max(0, l.trusted-now)
}
