package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// keeper keeps one lease alive, and tells its changes of state. It has three loops: watchdog, renew and keepClaims.
type keeper struct {
	*env
	events *events
	lease  *lease.Lease
	key    sessionKey
}

// keep renews the lease and publishes its changes of state until it is lost. If Close has caused the loss, Close
// publishes it.
func (k *keeper) keep() {
	var renewals sync.WaitGroup // joined below; they end with the lease
	renewals.Go(k.renew)
	renewals.Go(k.keepClaims)
	last := k.watchdog()
	if k.Context.Err() == nil {
		k.events.lost(k.lease, last)
	}
	renewals.Wait()
}

// watchdog wakes when the result of Lease.Check changes, and publishes the new state. It sends no RPC that could delay
// it. (For the reason of a suspension it asks the connection, for 100 ms at most.) When the lease is lost it returns
// the last state published.
func (k *keeper) watchdog() holdfast.State {
	l, state := k.lease, holdfast.Connected
	for {
		changed := l.Changed() // before Check, which may find a suspension at once, if the session key was put late
		err := l.Check()
		// Also if state is Suspended already. A renewal may have counted since, and its trusted time be half over by now:
		// then there is a new connected context to cancel.
		l.Suspend()
		switch {
		case err == nil && state == holdfast.Suspended:
			state = holdfast.Connected
			k.events.publish(Event{State: holdfast.Connected, Previous: holdfast.Suspended, Lease: l.ID()})
		case errors.Is(err, holdfast.ErrSuspended) && state == holdfast.Connected:
			state = holdfast.Suspended
			k.events.publish(Event{
				State: holdfast.Suspended, Previous: holdfast.Connected, Lease: l.ID(), Err: k.whySuspended(),
			})
		}
		select {
		case <-time.After(l.UntilChange(err)):
		case <-changed:
		case <-l.Context().Done():
			return state
		}
	}
}

// whySuspended returns why the last renewal failed, or has no reply yet. A LostError that follows has the same reason.
func (k *keeper) whySuspended() error {
	if trip := k.lease.TooLong(); trip > 0 {
		return fmt.Errorf("round trips to etcd take %v, more than a quarter of the time for which a renewal is trusted, so "+
			"this will happen at each renewal: choose a TTL of at least %v", trip, lease.TTLFor(trip))
	}
	why := retry.WithConnection(k.Client.ActiveConnection(), cmp.Or(k.lease.Failure(), errNoReply))
	k.lease.Failed(why)
	return why
}

// renew renews the lease when that is due, and again after a failure, until it is lost.
func (k *keeper) renew() {
	// The pauses of the user's policy may be too long for a renewal.
	policy := k.Retry
	policy.Max = min(cmp.Or(policy.Max, backoff.DefaultMax), k.lease.Trust()/6)
	policy.Initial = min(cmp.Or(policy.Initial, backoff.DefaultInitial), policy.Max)
	timer := time.NewTimer(k.lease.UntilRenewal())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-k.lease.Context().Done():
			return
		}
		if k.lease.UntilRenewal() <= 0 {
			// Until the loss nothing but a verdict on the lease ends the retries, no refused permission either: tokens are
			// refreshed and roles are repaired.
			began := k.Clock()
			_ = backoff.Retry(k.lease.Context(), policy, func(ctx context.Context) error { return k.renewOnce(ctx, began) })
		}
		timer.Reset(k.lease.UntilRenewal())
	}
}

// renewOnce renews the lease once, by requests that are sent after began, and records the result.
func (k *keeper) renewOnce(ctx context.Context, began time.Duration) error {
	if err := k.lease.Check(); errors.Is(err, holdfast.ErrLost) { // perhaps by a clock ahead of the timers
		return retry.Final(err)
	}
	tried := time.Now()
	left, err := k.renewAndProve(ctx, began)
	if err == nil {
		k.Telemetry.Renewed(tried, left)
		return nil
	}
	err = retry.WithConnection(k.Client.ActiveConnection(), err)
	k.lease.Failed(err)
	if k.Context.Err() == nil {
		k.Telemetry.RenewalFailed(tried, renewalOutcome(err), etcderr.Classify(err).String())
	}
	return retry.Again(err)
}

func renewalOutcome(err error) string {
	switch {
	case errors.Is(err, errUnconfirmed):
		return "unconfirmed"
	case errors.Is(err, errArrivedLate):
		return "late"
	default:
		return "failed"
	}
}

// keepClaims renews the lease of the claims after each third of its TTL. It ends with the session's lease: from then on
// nothing extends the claims.
func (k *keeper) keepClaims() {
	third := k.opts.claimsTTL() / 3
	// Sessions that begin together do not renew together.
	early := retry.NewPauses(third/10, third/10, k.Retry.Rand)
	for lease.Sleep(k.lease.Context(), third-early.NextBackOff()) {
		k.renewClaims()
	}
}

// renewClaims renews the lease of the claims, and tries until the session's lease is lost. Nothing is trusted by that
// lease, so its renewal needs no proof, and no haste.
func (k *keeper) renewClaims() {
	_ = backoff.Retry(k.lease.Context(), k.Retry, func(ctx context.Context) error {
		if err := k.lease.Check(); errors.Is(err, holdfast.ErrLost) { // perhaps by a clock ahead of the timers
			return retry.Final(err)
		}
		err := k.renewUnproved(ctx, requests.Unhurried, k.lease.Claims)
		if etcderr.Classify(err) == etcderr.LeaseGone {
			// Without its claims an entry looks released as soon as it goes. So the leases are lost together:
			//
			//	0 s    the lease of the claims is revoked by hand
			//	90 s   its renewal finds that: the holders are told
			//	91.5 s a drift margin later the session's lease is revoked, and the next client holds
			return retry.Final(k.lease.Lose(holdfast.CauseRevoked, fmt.Errorf("the lease of its claims: %w", err)))
		}
		return retry.Again(err)
	})
}

// renewUnproved renews a lease once. No read proves the reply.
func (e *env) renewUnproved(ctx context.Context, kind requests.Kind, id clientv3.LeaseID) error {
	_, _, err := requests.Once(ctx, e.Sender, kind, func(ctx context.Context) (*clientv3.LeaseKeepAliveResponse, error) {
		return keepAlive(ctx, e.Client, id)
	})
	return err
}
