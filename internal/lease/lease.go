// Package lease has what sessions, locks and elections share: a [Lease], which this process judges by its own
// clock, and the [Host], which is a session as locks and elections see it.
//
// Locks and terms are bound to a Lease, never to a session: a lock that was lost with one lease does not come back with
// the next.
//
// In lease.go a Lease is trusted, suspended and lost. renewal.go judges its renewals, and says when the next is due.
// hearing.go has what its holders hear and when they poll. calls.go says how long a call goes on: which contexts end
// it, how it pauses, and what its error says when the session was closed meanwhile.
package lease

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// Lease is a lease in etcd as this process knows it. It is safe for concurrent use.
type Lease struct {
	// Claims is the lease of the claims, set before the Lease is shared. A claim is a key beside an entry. It outlives the
	// entry by minutes, and without the entry it tells that there was no release. Each Lease has a lease of claims of its
	// own, and is lost with it.
	Claims clientv3.LeaseID

	Hearing
	origin Origin // Margin is set
	clock  func() time.Duration
	ctx    context.Context // done once lost, with the *holdfast.LostError as its cause
	cancel context.CancelCauseFunc

	mu    sync.Mutex // protects what follows
	trust trust
	lost  *holdfast.LostError // written once
	gate  int64               // mod revision of the session key
	heard int64               // the largest mod revision that has rung the bell
	evidence
	connection
}

// connection tells those who wait: the lease is suspended, or connected again.
type connection struct {
	connected context.Context
	suspend   context.CancelCauseFunc // cancels connected
	ends      bool                    // connected is canceled, or is about to be
	changed   chan struct{}           // closed at the next confirmed renewal
}

// New returns the lease of a Grant. It is trusted from the moment the request was sent. clock returns elapsed time.
func New(g Origin, clock func() time.Duration) *Lease {
	if g.Margin == 0 {
		g.Margin = max(g.TTL/10, 200*time.Millisecond)
	}
	l := &Lease{
		origin: g, clock: clock, trust: g.trusted(g.Sent, g.TTL),
		Hearing:    Hearing{bell: make(chan struct{}, 1)},
		connection: connection{changed: make(chan struct{})},
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.connected, l.suspend = context.WithCancelCause(l.ctx)
	l.Say(Step{Action: Granted, At: g.Sent, Sent: g.Sent, TTL: g.TTL, Margin: g.Margin, Until: l.trust.until})
	return l
}

// ID returns the lease's ID in etcd.
func (l *Lease) ID() clientv3.LeaseID { return l.origin.ID }

// Key returns the lease's session key.
func (l *Lease) Key() string { return l.origin.Key }

// Cluster returns the ID of the etcd cluster of the lease.
func (l *Lease) Cluster() uint64 { return l.origin.Cluster }

// TTL returns the time to live, as etcd granted it.
func (l *Lease) TTL() time.Duration { return l.origin.TTL }

// Margin returns the drift margin.
func (l *Lease) Margin() time.Duration { return l.origin.Margin }

// Trust returns how long the lease is trusted after a renewal was sent.
func (l *Lease) Trust() time.Duration { return l.origin.trustFor(l.origin.TTL) }

// Changed returns a channel. It is closed at the next confirmed renewal.
func (l *Lease) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Context is canceled when the lease is lost; its cause is the *holdfast.LostError.
func (l *Lease) Context() context.Context { return l.ctx }

// ConnectedContext returns a context that ends when the lease is suspended (cause holdfast.ErrSuspended) or lost (cause
// *holdfast.LostError). After a reconnection it returns a new context.
func (l *Lease) ConnectedContext() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.connected
}

// Check judges the lease now: nil, holdfast.ErrSuspended or a *holdfast.LostError. If trusted-until has passed, it
// makes the loss final.
func (l *Lease) Check() error {
	now := l.clock() // in every call, because timers fire late after a pause
	l.mu.Lock()
	if l.lost == nil && now < l.trust.until {
		suspended := now >= l.trust.suspendAt()
		l.mu.Unlock()
		if suspended {
			return holdfast.ErrSuspended
		}
		return nil
	}
	// The loss is final before it is reported. Otherwise a renewal could bring back a lock after its holder was told:
	//
	//	18.0 s  trusted-until. The watchdog's timer is late
	//	18.1 s  a holder calls Check, and hears: lost. It stops its work
	//	18.2 s  the replies to a renewal come. They must not count
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
		if cause == holdfast.CauseRevoked && now >= l.trust.until {
			cause = holdfast.CauseExpired // after a pause a process may hear from etcd before it reads its clock
		}
		if err == nil && cause == holdfast.CauseExpired {
			err = l.failure
		}
		l.lost = &holdfast.LostError{Lease: l.origin.ID, Cause: cause, Since: now - l.trust.from, Err: err}
		l.Say(Step{Action: Loses, At: now, Cause: cause})
	}
	return l.lost
}

// AwaitConnected waits while the lease is suspended. It returns nil when the lease is connected, the
// *holdfast.LostError when it is lost, and ctx's error when ctx ends first.
func (l *Lease) AwaitConnected(ctx context.Context) error {
	for {
		changed := l.Changed() // before Check: a renewal may count in between
		if err := l.Check(); !errors.Is(err, holdfast.ErrSuspended) {
			return err
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
		case <-ctx.Done():
			return retry.ContextErr(ctx)
		}
	}
}

// confirmLocked extends the trust by a confirmed renewal.
func (l *Lease) confirmLocked(now time.Duration, t trust) {
	l.trust = t
	l.Say(Step{Action: Confirmed, At: now, Until: l.trust.until})
	l.failure = nil
	if now < l.trust.suspendAt() && l.ends { // or a reply was kept for so long that the lease stays suspended
		// Who acts on the renewal before the watchdog has woken must not get the context of the suspension.
		l.connected, l.suspend = context.WithCancelCause(l.ctx)
		l.ends = false
	}
	// Wake the watchdog and AwaitConnected. Both judge by the clock: AwaitConnected may have seen a suspension that the
	// watchdog, whose timer has not fired yet, will never see.
	close(l.changed)
	l.changed = make(chan struct{})
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

// Suspend ends the connected context if the lease is suspended.
func (l *Lease) Suspend() {
	now := l.clock()
	l.mu.Lock()
	begins := now >= l.trust.suspendAt() && !l.ends && l.lost == nil
	suspend := l.suspend
	if begins {
		l.ends = true
		l.Say(Step{Action: Suspends, At: now})
	}
	l.mu.Unlock()
	if begins {
		suspend(holdfast.ErrSuspended)
	}
}

// UntilChange returns the time until Check, which has just returned err, changes its answer, if no renewal is confirmed
// before. That time may have come meanwhile: then it is zero or less.
func (l *Lease) UntilChange(err error) time.Duration {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		return l.trust.suspendAt() - now
	}
	return l.trust.until - now
}

// Remaining returns the time until trusted-until; 0 once lost.
func (l *Lease) Remaining() time.Duration {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != nil {
		return 0
	}
	return max(0, l.trust.until-now)
}

// Gate returns the last known mod revision of the lease's session key.
func (l *Lease) Gate() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gate
}

// NoteGate records a mod revision of the session key. The gate only grows.
func (l *Lease) NoteGate(rev int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gate == 0 {
		l.heard = rev // the put after the Grant rings no bell: nothing is held yet
	}
	l.gate = max(l.gate, rev)
}

// Say tells the observer of a step.
func (l *Lease) Say(s Step) {
	if l.origin.Observer != nil {
		s.Lease = l.origin.ID
		l.origin.Observer(s)
	}
}

// Sends returns the time at which a request is sent: now. a is Renews or Reads.
func (l *Lease) Sends(a Action) (sent time.Duration) {
	sent = l.clock()
	l.Say(Step{Action: a, At: sent, Sent: sent})
	return sent
}
