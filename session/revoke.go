package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// revokeLost revokes a lost lease a drift margin after its loss, about when etcd would have expired it. The revocation
// deletes its entries and makes late requests about it fail. In the margin holders notice the loss, on a busy machine
// as well, before another client can acquire. Close cuts the wait short.
func (g *granter) revokeLost(ctx context.Context, l *lease.Lease) {
	grace := time.NewTimer(l.Margin())
	defer grace.Stop()
	select {
	case <-grace.C:
		g.work.beforeRevoke(ctx, l)
		p := pairOf(l)
		// Once: if etcd does not answer, the lease expires. All sessions may have lost theirs in the same moment, and
		// more requests would add to the load.
		if err := g.revokePair(ctx, requests.Unhurried, p); !etcderr.Pending(err) {
			g.notRevoked(ctx, l, p, err)
		}
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		g.drop(ctx, l)
	}
}

// drop revokes a lease other than the latest: it has no user, or Close must not leave it behind.
func (g *granter) drop(ctx context.Context, l *lease.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.opts.CloseTimeout)
	defer cancel()
	p, err := g.endLease(ctx, l)
	g.notRevoked(ctx, l, p, err)
}

// notRevoked logs why a lost lease was not revoked, if err says so.
func (g *granter) notRevoked(ctx context.Context, l *lease.Lease, p *pair, err error) {
	if err != nil && ctx.Err() == nil {
		g.opts.Logger.Warn("holdfast: could not revoke a lost lease: "+p.stands(l, g.opts),
			"lease", names.Lease(l.ID()), "error", err)
	}
}

// endLease runs the hooks and revokes the pair of l, and with it the entries that the hooks have left. It tries until
// ctx ends; after that the leases expire. It returns what it could not revoke.
func (g *granter) endLease(ctx context.Context, l *lease.Lease) (*pair, error) {
	p := pairOf(l)
	err := backoff.Retry(ctx, g.opts.Retry, func(ctx context.Context) error {
		if g.clientClosed() {
			return retry.Final(holdfast.ErrClientClosed)
		}
		g.work.beforeRevoke(ctx, l)
		return g.revokePair(ctx, requests.Write, p)
	})
	if etcderr.Pending(err) && !errors.Is(err, holdfast.ErrClientClosed) {
		return p, fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
	}
	return p, err
}

// pair is the pair of leases of a session. A lease that is revoked is clientv3.NoLease.
type pair struct{ own, claims clientv3.LeaseID }

func pairOf(l *lease.Lease) *pair { return &pair{l.ID(), l.Claims()} }

// revokePair revokes the lease of the claims and then the session's. In the other order those behind would see claims
// without entries, as after a crash, and would wait for the lock delay:
//
//	rev 20: the session's lease is revoked, its entries go · a waiter looks: claims without entries
//	rev 21: the lease of the claims is revoked
func (g *granter) revokePair(ctx context.Context, kind requests.Kind, p *pair) error {
	claims := g.revokeOnce(ctx, kind, &p.claims)
	if etcderr.Retryable(claims) || etcderr.Pending(claims) {
		return claims
	}
	// Etcd may refuse the first revocation for good. Send the second nevertheless: a delay for others is better than
	// entries that stay.
	own := g.revokeOnce(ctx, kind, &p.own)
	if claims != nil && own != nil {
		return fmt.Errorf("%w; %w", claims, own)
	}
	return cmp.Or(claims, own)
}

// revokeOnce revokes *id, unless that is clientv3.NoLease. Once the lease is gone it sets *id to clientv3.NoLease.
func (g *granter) revokeOnce(ctx context.Context, k requests.Kind, id *clientv3.LeaseID) error {
	if *id == clientv3.NoLease {
		return nil
	}
	_, _, err := requests.Once(ctx, g.sender, k, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, revokeRequest(ctx, g.client, *id)
	})
	if err != nil && etcderr.Classify(err) != etcderr.LeaseGone {
		return fmt.Errorf("revoke lease %x: %w", int64(*id), err)
	}
	*id = clientv3.NoLease
	return nil
}

// stands says which leases of the pair were not revoked, and what follows.
func (p *pair) stands(l *lease.Lease, o Options) (text string) {
	if p.own != clientv3.NoLease {
		text = fmt.Sprintf("lease %x stays with its entries until etcd expires it (TTL %v)", int64(p.own), l.TTL())
	}
	if p.claims == clientv3.NoLease {
		return text
	}
	if text != "" {
		text += "; "
	}
	return text + fmt.Sprintf("lease %x stays with its claims until etcd expires it (TTL %v), and until then each new "+
		"holder of one of its names waits for the lock delay", int64(p.claims), o.claimsTTL())
}
