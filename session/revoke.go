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
// deletes its entries and makes late requests about it fail. Close cuts the wait short.
func (g *granter) revokeLost(ctx context.Context, l *lease.Lease) {
	// In the margin holders notice the loss, on a busy machine as well, before another client can acquire.
	grace := time.NewTimer(l.Margin())
	defer grace.Stop()
	select {
	case <-grace.C:
		g.work.beforeRevoke(ctx, l)
		// Once: if etcd does not answer, the lease expires. All sessions may have lost theirs in the same moment, and
		// more requests would add to the load.
		if err := g.revokePair(ctx, requests.Unhurried, l); !etcderr.Pending(err) {
			g.notRevoked(ctx, l, err)
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
	g.notRevoked(ctx, l, g.endLease(ctx, l))
}

// notRevoked logs why a lost lease was not revoked, if err says so.
func (g *granter) notRevoked(ctx context.Context, l *lease.Lease, err error) {
	if err != nil && ctx.Err() == nil {
		g.Logger.Warn("holdfast: could not revoke a lost lease", "lease", names.Lease(l.ID()), "error", err)
	}
}

// endLease runs the hooks and revokes the pair of l, and with it the entries that the hooks have left. It tries until
// ctx ends; after that the leases expire. Its error says which of them stand.
func (g *granter) endLease(ctx context.Context, l *lease.Lease) error {
	err := backoff.Retry(ctx, g.Retry, func(ctx context.Context) error {
		if g.clientClosed() {
			return retry.Final(g.stands(l.ID(), "entries", l.TTL(), holdfast.ErrClientClosed))
		}
		g.work.beforeRevoke(ctx, l)
		return g.revokePair(ctx, requests.Write, l)
	})
	if etcderr.Pending(err) && !errors.Is(err, holdfast.ErrClientClosed) {
		return fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
	}
	return err
}

// revokePair revokes the lease of the claims and then the session's.
func (g *granter) revokePair(ctx context.Context, kind requests.Kind, l *lease.Lease) error {
	// If the session's lease went first, those behind would see claims without entries, as after a crash, and would wait
	// for the lock delay:
	//
	//	rev 20  the session's lease is revoked, its entries go · a waiter looks: claims without entries
	//	rev 21  the lease of the claims is revoked
	claims := g.revoke(ctx, kind, l.Claims)
	claims = g.stands(l.Claims, "claims, which delay each new holder,", g.opts.claimsTTL(), claims)
	if etcderr.Retryable(claims) || etcderr.Pending(claims) {
		return g.stands(l.ID(), "entries", l.TTL(), claims)
	}
	// Etcd may refuse the first revocation for good. Send the second nevertheless: a delay for others is better than
	// entries that stay.
	own := g.stands(l.ID(), "entries", l.TTL(), g.revoke(ctx, kind, l.ID()))
	if claims != nil && own != nil {
		return fmt.Errorf("%w; %w", claims, own)
	}
	return cmp.Or(claims, own)
}

// revoke revokes a lease, unless it has gone.
func (g *granter) revoke(ctx context.Context, k requests.Kind, id clientv3.LeaseID) error {
	_, _, err := requests.Once(ctx, g.Sender, k, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, revokeRequest(ctx, g.Client, id)
	})
	if etcderr.Classify(err) == etcderr.LeaseGone {
		return nil
	}
	return err
}

// stands adds to the error of a revocation what follows from it.
func (g *granter) stands(id clientv3.LeaseID, with string, ttl time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("lease %x stays with its %s until etcd expires it (TTL %v): %w", int64(id), with, ttl, err)
}
