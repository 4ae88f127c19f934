// Package lease has what sessions, locks and elections share: a [Lease], which this process judges by its own
// clock, and the [Host], which is a session as locks and elections see it.
//
// Locks and terms are bound to a Lease, never to a session: a lock that was lost with one lease does not come back with
// the next.
package lease

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
)

// maxTrusted is the longest time for which a renewal is trusted. A cluster with lease checkpoints may resume a longer
// lease with less than its TTL.
const maxTrusted = 300 * time.Second

// Lease is one lease in etcd as this process knows it. It is safe for concurrent use.
type Lease struct {
	id      clientv3.LeaseID
	ttl     time.Duration // as granted
	margin  time.Duration
	clock   func() time.Duration
	ctx     context.Context // done once lost, with the *holdfast.LostError as its cause
	cancel  context.CancelCauseFunc
	renewed chan struct{} // wakes the watchdog after a confirmed renewal
	cluster uint64
	trust   time.Duration // how long a renewal is trusted

	mu        sync.Mutex          // protects what follows
	confirmed time.Duration       // send time of the last confirmed renewal
	trusted   time.Duration       // trusted-until
	lost      *holdfast.LostError // written once
	gate      int64               // mod revision of the session key
	failure   error               // of the last failed renewal
	connected context.Context
	suspend   context.CancelCauseFunc // cancels connected
	changed   chan struct{}           // closed at the next change of state, and at each confirmed renewal
}

// Grant is etcd's reply to the request for a lease.
type Grant struct {
	ID      clientv3.LeaseID
	Cluster uint64        // the ID of the cluster that answered
	TTL     time.Duration // as granted
	Margin  time.Duration // taken off the TTL; 0: the larger of TTL/10 and 200 ms
	Sent    time.Duration // when the request was sent, by the clock of the lease
}

// New returns the lease that was granted. It is trusted from the moment the request was sent. clock returns elapsed
// time.
func New(g Grant, clock func() time.Duration) *Lease {
	margin := g.Margin
	if margin == 0 {
		margin = max(g.TTL/10, 200*time.Millisecond)
	}
	l := &Lease{
		id: g.ID, cluster: g.Cluster, ttl: g.TTL, margin: margin, clock: clock,
		trust:     min(g.TTL, maxTrusted) - margin,
		renewed:   make(chan struct{}, 1),
		confirmed: g.Sent,
		changed:   make(chan struct{}),
	}
	l.trusted = g.Sent + l.trust
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.connected, l.suspend = context.WithCancelCause(l.ctx)
	return l
}

// ID is the lease's ID in etcd.
func (l *Lease) ID() clientv3.LeaseID { return l.id }

// Cluster is the ID of the etcd cluster that granted the lease.
func (l *Lease) Cluster() uint64 { return l.cluster }

// TTL is the time to live that etcd granted.
func (l *Lease) TTL() time.Duration { return l.ttl }

// Margin is the drift margin.
func (l *Lease) Margin() time.Duration { return l.margin }

// Trust is how long the lease is trusted after a renewal was sent.
func (l *Lease) Trust() time.Duration { return l.trust }

// Renewed receives a value after a confirmed renewal. It has one reader, the session's watchdog.
func (l *Lease) Renewed() <-chan struct{} { return l.renewed }

// Context is canceled when the lease is lost; its cause is the *holdfast.LostError.
func (l *Lease) Context() context.Context { return l.ctx }

// ConnectedContext returns a context that is canceled when the lease is suspended (cause holdfast.ErrSuspended) or lost
// (cause *holdfast.LostError). After a reconnection there is a new one.
func (l *Lease) ConnectedContext() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.connected
}

// Check judges the lease now: nil, holdfast.ErrSuspended or a *holdfast.LostError. It reads the clock in every call,
// because timers fire late after a pause.
//
// If trusted-until has passed, Check makes the loss final before it reports it. Otherwise a renewal that is confirmed a
// moment later could bring back a lock whose holder has been told that it is lost.
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

// Lose makes the lease lost, unless it already is, and returns the loss.
func (l *Lease) Lose(cause holdfast.Cause, err error) *holdfast.LostError {
	now := l.clock()
	l.mu.Lock()
	lost := l.loseLocked(cause, now, err)
	l.mu.Unlock()
	l.cancel(lost)
	return lost
}

// Lost returns the loss, or nil. It does not read the clock; see Check.
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

// AwaitConnected waits while the lease is suspended. It returns nil when the lease is connected, the
// *holdfast.LostError when it is lost, and ctx's error when ctx ends first.
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

// Confirm extends the trust by a proved renewal that counts from sent and was answered with ttl. It reports false, and
// changes nothing, if the lease is not trusted any more.
func (l *Lease) Confirm(sent, ttl time.Duration) bool {
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
	// Wake AwaitConnected. It judges by the clock, so it may have seen a suspension that the watchdog, whose timer
	// has not fired yet, will never see.
	close(l.changed)
	l.changed = make(chan struct{})
	select {
	case l.renewed <- struct{}{}:
	default: // the watchdog is about to look anyway
	}
	return true
}

// Failed records why a renewal failed, for the LostError.
func (l *Lease) Failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = err
}

// Failure returns why the last renewal failed; nil after a confirmed one.
func (l *Lease) Failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure
}

// Explain replaces failure by an error that says more, unless there is another failure by now.
func (l *Lease) Explain(failure, more error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == failure {
		l.failure = more
	}
}

// renewAtLocked returns when the next renewal is due: after three eighths of the trusted time, about a third of the
// TTL. The suspension comes at a half. The eighth between the two is for the renewal, whatever the TTL and the
// margin are.
func (l *Lease) renewAtLocked() time.Duration {
	return l.confirmed + (l.trusted-l.confirmed)*3/8
}

// suspendAtLocked returns when the lease becomes suspended: half of the trusted time after the last confirmed
// renewal. The same rule covers a process that was paused, since the clock counts the pause.
func (l *Lease) suspendAtLocked() time.Duration {
	return l.confirmed + (l.trusted-l.confirmed)/2
}

// Enter records a change of state that the watchdog has seen, and wakes AwaitConnected.
func (l *Lease) Enter(s holdfast.State) {
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

// reconnectLocked replaces a canceled connected context. Confirm calls it as well: code that acts on the renewal
// before the watchdog has woken must not get the context that the suspension has canceled.
func (l *Lease) reconnectLocked() {
	if l.connected.Err() != nil {
		l.connected, l.suspend = context.WithCancelCause(l.ctx)
	}
}

// UntilChange is the time until Check next changes its answer, if no renewal is confirmed before.
func (l *Lease) UntilChange() time.Duration {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.suspendAtLocked(); now < at {
		return at - now
	}
	return l.trusted - now
}

// UntilRenewal is the time until the next renewal; zero or less when it is due.
func (l *Lease) UntilRenewal() time.Duration {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewAtLocked() - now
}

// Remaining is the time until trusted-until; 0 once lost.
func (l *Lease) Remaining() time.Duration {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != nil {
		return 0
	}
	return max(0, l.trusted-now)
}

// Unconfirmed is the time since the last confirmed renewal was sent.
func (l *Lease) Unconfirmed() time.Duration {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return now - l.confirmed
}

// Gate is the last known mod revision of the lease's session key.
func (l *Lease) Gate() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gate
}

// SawGate records a mod revision of the session key. The gate only grows.
func (l *Lease) SawGate(rev int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate = max(l.gate, rev)
}
