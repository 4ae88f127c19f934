package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// A session has a pair of leases. L1 has the session key and the entries; L2 has the claims. L2 outlives L1 by minutes,
// so a claim without its entry tells that the entry went with L1 and was not released. No L2 serves two L1.
const (
	// claimsTTLs: the TTL of L2 is so many times that of L1.
	claimsTTLs = 20

	// minClaimsTTL is the shortest TTL of L2. Nothing proves a renewal of L2: after one that only a deposed leader has
	// seen, what is left of the TTL must do.
	minClaimsTTL = 300 * time.Second
)

// claimsTTL returns the TTL of the lease of the claims.
func (o Options) claimsTTL() time.Duration { return max(claimsTTLs*o.TTL, minClaimsTTL) }

func newLeaseID() clientv3.LeaseID { return clientv3.LeaseID(1 + rand.Int64N(math.MaxInt64)) }

// obtain obtains a lease with its session key and, side by side, the lease of its claims. If that is not granted by the
// time that the first lease must be renewed, the session begins without it, and its keeper goes on asking.
func (g *granter) obtain(ctx context.Context) (*lease.Lease, error) {
	beside, cancel := context.WithCancel(ctx)
	defer cancel()
	var claims clientv3.LeaseID
	var granting sync.WaitGroup
	granting.Go(func() { claims, _ = g.grantClaims(beside) })
	l, err := g.obtainOwn(ctx)
	if l == nil {
		cancel() // nothing needs these claims
	} else {
		defer time.AfterFunc(l.UntilRenewal(), cancel).Stop()
	}
	granting.Wait()
	if l == nil {
		return nil, err
	}
	l.SetClaims(claims)
	if err != nil {
		g.dropUnannounced(ctx, l, err)
		return nil, err
	}
	// No holder has relied on the lease before. So a suspension that has begun is told in time from now on:
	//
	//	0 s     the Grant is sent, and is trusted for 2.7 s: the suspension begins at 1.35 s
	//	0.8 s   the reply to the Grant. The put is sent, and a renewal beside it
	//	1.54 s  the reply to the put. The renewal hangs
	//	1.88 s  the renewal is given up. The session begins, and tells that it is suspended
	l.Say(lease.Step{Action: lease.Begins, At: g.opts.Clock()})
	return l, nil
}

// dropUnannounced revokes a lease whose session key could not be put, if etcd answers, or if Close has cut the put off
// and must leave no lease behind.
func (g *granter) dropUnannounced(ctx context.Context, l *lease.Lease, err error) {
	if etcderr.Pending(err) && g.ctx.Err() == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.opts.CloseTimeout)
	defer cancel()
	g.revoke(ctx, l)
}

// grantClaims grants a lease of claims. Like grant, it sends each copy with an ID of its own.
func (e *env) grantClaims(ctx context.Context) (clientv3.LeaseID, error) {
	id, _, err := requests.Once(ctx, e.sender, requests.Grant, func(ctx context.Context) (clientv3.LeaseID, error) {
		resp, err := grantAs(ctx, e.client, newLeaseID(), int64(e.opts.claimsTTL()/time.Second))
		if err != nil {
			return clientv3.NoLease, err
		}
		return resp.ID, nil
	})
	return id, err
}

// keepClaims renews the lease of the claims a third of its TTL after the last time, and grants another one if etcd has
// lost it, until the session's lease is lost. From then on nothing extends the claims.
func (k *keeper) keepClaims() {
	third := k.opts.claimsTTL() / 3
	// Sessions that begin together do not renew together.
	early := retry.NewPauses(third/10, third/10, 1, k.opts.Retry.Rand)
	last := k.lease.Claims()
	for k.lease.Context().Err() == nil {
		id, changed := k.lease.ClaimsNow()
		if id == clientv3.NoLease {
			last = k.replaceClaims(last)
			continue
		}
		select {
		case <-time.After(third - early.NextBackOff()):
			k.renewClaims(id)
		case <-changed:
		case <-k.lease.Context().Done():
		}
	}
}

// replaceClaims grants the lease that follows lost, and tells of that loss; lost is clientv3.NoLease if there was none
// yet.
func (k *keeper) replaceClaims(lost clientv3.LeaseID) (next clientv3.LeaseID) {
	if lost != clientv3.NoLease {
		k.telemetry.ClaimsLost()
		k.opts.Logger.Warn("holdfast: etcd has lost the lease of a session's claims; later entries have claims again; "+
			"entries that stand keep their order, but if their own lease is revoked early, those behind do not wait for "+
			"the lock delay; nothing is lost", "lease", names.Lease(k.lease.ID()), "claims", names.Lease(lost))
	}
	k.pursue(func(ctx context.Context) (err error) {
		next, err = k.grantClaims(ctx)
		return err
	})
	k.lease.SetClaims(next)
	return next
}

// renewClaims renews the lease of the claims. Nothing is trusted because of it, so it needs no proof, and no haste.
func (k *keeper) renewClaims(id clientv3.LeaseID) {
	k.pursue(func(ctx context.Context) error {
		_, _, err := requests.Once(ctx, k.sender, requests.Unhurried, func(ctx context.Context) (struct{}, error) {
			_, err := keepAlive(ctx, k.client, id)
			return struct{}{}, err
		})
		switch {
		case err == nil:
			k.lease.ConfirmClaims(id)
		case etcderr.Classify(err) == etcderr.LeaseGone:
			k.lease.LoseClaims(id)
			return nil
		}
		return err
	})
}

// pursue calls op until it returns nil or the session's lease is lost, also by a clock that no timer has told of yet.
func (k *keeper) pursue(op func(ctx context.Context) error) {
	policy := k.opts.Retry
	policy.Attempt = 0 // requests.Once bounds each request
	_ = backoff.Retry(k.lease.Context(), policy, func(ctx context.Context) error {
		if err := k.lease.Check(); errors.Is(err, holdfast.ErrLost) {
			return retry.Final(err)
		}
		return retry.Again(op(ctx))
	})
}

// pair is the pair of leases of a session, as far as they are still to be revoked.
type pair struct{ own, claims clientv3.LeaseID }

func pairOf(l *lease.Lease) *pair { return &pair{l.ID(), l.Claims()} }

// revokePair revokes the lease of the claims and then the session's. In the other order those behind would see claims
// without entries, which is how a crash looks, and would wait for the lock delay:
//
//	rev 20: the session's lease is revoked, its entries go · a waiter looks: claims without entries
//	rev 21: the lease of the claims is revoked
//
// If etcd refuses the first for good, the second is revoked nevertheless: better a delay than entries that stay.
func (g *granter) revokePair(ctx context.Context, kind requests.Kind, p *pair) error {
	claims := g.revokeOnce(ctx, kind, &p.claims)
	if etcderr.Retryable(claims) || etcderr.Pending(claims) {
		return claims
	}
	own := g.revokeOnce(ctx, kind, &p.own)
	if claims != nil && own != nil {
		return fmt.Errorf("%w; %w", claims, own)
	}
	return cmp.Or(claims, own)
}

// stands says which of the leases of a session were not revoked, and what that means.
func (p *pair) stands(l *lease.Lease, o Options) string {
	const rest = "whoever wants one of its names until then waits for the lock delay"
	switch {
	case p.claims == clientv3.NoLease:
		return fmt.Sprintf("lease %x was not revoked, its entries stay until etcd expires it (TTL %v)", int64(p.own), l.TTL())
	case p.own == clientv3.NoLease:
		return fmt.Sprintf("lease %x of the claims was not revoked, its claims stay until etcd expires it (TTL %v): %s",
			int64(p.claims), o.claimsTTL(), rest)
	}
	return fmt.Sprintf("lease %x and lease %x of its claims were not revoked, "+
		"their keys stay until etcd expires them (TTL %v and %v): %s",
		int64(p.own), int64(p.claims), l.TTL(), o.claimsTTL(), rest)
}
