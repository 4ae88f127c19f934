package session

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/sending"
)

// A session has a pair of leases. L1 has the session key and the entries, L2 their claims. L2 outlives L1 by minutes,
// so a claim without its entry tells that the entry went with L1 and was not released. No L2 serves two L1.
const (
	// claimsTTLs is how many times the TTL of L1 the TTL of L2 is: whoever comes within that time learns of the loss.
	claimsTTLs = 20

	// minClaimsTTL is the shortest TTL of L2. L2 is renewed without a proof, so a leader that was paused for less than
	// what is left of this does not end it.
	minClaimsTTL = 300 * time.Second
)

// claimsTTL returns the TTL of the lease of the claims.
func (o Options) claimsTTL() time.Duration { return max(claimsTTLs*o.TTL, minClaimsTTL) }

// grantClaims grants a lease of claims. Like grant, it sends each copy with an ID of its own.
func (g *granter) grantClaims(ctx context.Context) (clientv3.LeaseID, error) {
	id, _, err := sending.Once(ctx, g.sender, sending.Grant, func(ctx context.Context) (clientv3.LeaseID, error) {
		resp, err := grantAs(ctx, g.client, newLeaseID(), int64(g.opts.claimsTTL()/time.Second))
		if err != nil {
			return clientv3.NoLease, err
		}
		return resp.ID, nil
	})
	return id, err
}

// obtain obtains a lease with its session key and, side by side, the lease of its claims. Without the latter the
// session begins, too: its keeper grants another one.
func (g *granter) obtain(ctx context.Context) (*lease.Lease, error) {
	beside, cancel := context.WithCancel(ctx)
	defer cancel()
	var claims clientv3.LeaseID
	var granting sync.WaitGroup
	granting.Go(func() { claims, _ = g.grantClaims(beside) })
	l, err := g.obtainOwn(ctx)
	if l == nil {
		cancel() // no lease needs these claims
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
	return l, nil
}

// dropUnannounced revokes a lease whose session key could not be put, if etcd answers, or if Close has cut the put off
// and must leave no lease behind.
func (g *granter) dropUnannounced(ctx context.Context, l *lease.Lease, err error) {
	if etcderr.Pending(err) && g.ctx.Err() == nil || etcderr.Classify(err) == etcderr.LeaseGone {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.opts.CloseTimeout)
	defer cancel()
	g.revoke(ctx, l)
}

func newLeaseID() clientv3.LeaseID { return clientv3.LeaseID(1 + rand.Int64N(math.MaxInt64)) }
