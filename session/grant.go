package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// granter obtains leases from etcd, and revokes them.
type granter struct {
	*env
	work *work
}

// obtainOwn obtains a lease and puts its session key. It returns the lease together with the error if that put failed.
// A Grant is trusted from its send time. It needs no proof, because it goes through Raft.
func (g *granter) obtainOwn(ctx context.Context) (*lease.Lease, error) {
	l, err := g.grant(ctx)
	if err != nil {
		return nil, fmt.Errorf("grant a lease: %w", retry.WithConnection(g.client.ActiveConnection(), err))
	}
	if err := l.Check(); err != nil {
		// The reply took so long that the lease is no longer trusted: etcd's client may have repeated the
		// Grant. The lease is left to expire.
		return nil, retry.Again(fmt.Errorf("grant a lease: %w", err))
	}
	return l, g.announce(ctx, l)
}

// grant sends a Grant, and further ones while it is not answered. Each has its own ID, chosen here, so a late Grant
// cannot bring back a lease that was lost. Surplus leases have no keys. They are left to expire, which costs etcd less
// than to revoke them.
func (g *granter) grant(ctx context.Context) (*lease.Lease, error) {
	l, _, err := requests.Once(ctx, g.sender, requests.Grant, func(ctx context.Context) (*lease.Lease, error) {
		sent := g.opts.Clock()
		resp, err := grantAs(ctx, g.client, newLeaseID(), int64(g.opts.TTL/time.Second))
		if err != nil {
			return nil, err
		}
		return lease.New(lease.Grant{
			ID: resp.ID, Key: g.SessionKey(resp.ID), Cluster: resp.ClusterId, TTL: time.Duration(resp.TTL) * time.Second,
			Margin: g.opts.DriftMargin, Sent: sent, Observer: g.observer,
		}, g.opts.Clock), nil
	})
	return l, err
}

// announce puts the session key of a lease that was just granted. If the Grant took long, a renewal goes beside the
// put: otherwise the Grant, the put and the first renewal would have to fit into one trusted time. The put proves the
// renewal as a linearizable read would; see renewAndProve.
func (g *granter) announce(ctx context.Context, l *lease.Lease) error {
	if !l.BeganSlowly() {
		_, err := g.keyOf(l).put(ctx, requests.Grant)
		return g.refused(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	defer renewing.Wait()
	// A leader that has not applied the Grant yet does not know the lease, so no error is a verdict.
	renewing.Go(func() { _, _ = g.keyOf(l).renew(ctx) })
	put, err := g.keyOf(l).put(ctx, requests.Grant)
	if err != nil {
		cancel()
		return g.refused(err)
	}
	l.Prove(put.sent, put.Header.RaftTerm)
	time.AfterFunc(l.Trust()/8, cancel) // the renewal's member may hang
	return nil
}

// refused returns the error of a put of a new lease's session key, with what to do about it.
func (g *granter) refused(err error) error {
	switch etcderr.Classify(err) {
	case etcderr.OK:
		return nil
	case etcderr.LeaseGone:
		return retry.Again(err) // it took too long
	case etcderr.Unauthorized:
		if errors.Is(err, rpctypes.ErrPermissionDenied) { // and not, say, a token that has expired
			err = fmt.Errorf("%w; grant it to a role of this user: "+
				"etcdctl role grant-permission --prefix ROLE readwrite %s", err, names.SessionKeys(g.opts.Namespace))
		}
	case etcderr.Transient, etcderr.Permanent, etcderr.Unknown:
	}
	return err
}

// obtainNext obtains the lease that follows a loss. It tries until the session or the client is closed, and calls
// refused each time that permission for it is refused.
func (g *granter) obtainNext(refused func(error)) (*lease.Lease, error) {
	var l *lease.Lease
	policy := g.opts.Retry
	policy.Attempt = 0 // requests.Once bounds each request
	err := backoff.Retry(g.ctx, policy, func(ctx context.Context) (err error) {
		l, err = g.obtain(ctx)
		switch {
		case err == nil || g.clientClosed():
			return err
		case etcderr.Classify(err) == etcderr.Unauthorized:
			refused(err)
		}
		return retry.Again(err)
	})
	return l, err
}

// revokeLost revokes a lost lease a drift margin after its loss, about when etcd would have expired it. That
// deletes its entries and makes late requests that name it fail. The wait gives holders time to notice the loss, on
// a busy machine as well, before another client can acquire. Close cuts the wait short.
//
// It is tried once. If etcd does not answer, the lease expires, and all sessions may have lost theirs.
func (g *granter) revokeLost(ctx context.Context, l *lease.Lease) {
	grace := time.NewTimer(l.Margin())
	defer grace.Stop()
	select {
	case <-grace.C:
		g.work.beforeRevoke(ctx, l)
		p := pairOf(l)
		if err := g.revokePair(ctx, requests.Unhurried, p); !etcderr.Pending(err) {
			g.notRevoked(ctx, l, p, err)
		}
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		g.dropLease(l)
	}
}

// dropLease revokes a lease other than the latest after Close has begun. It has its own timeout, since g.ctx is done.
func (g *granter) dropLease(l *lease.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), g.opts.CloseTimeout)
	defer cancel()
	g.revoke(ctx, l)
}

// revoke ends a lease in etcd, and tries until ctx ends. After that the lease expires.
func (g *granter) revoke(ctx context.Context, l *lease.Lease) {
	p, err := g.endLease(ctx, l)
	g.notRevoked(ctx, l, p, err)
}

// notRevoked logs why a lost lease could not be revoked, if it could not.
func (g *granter) notRevoked(ctx context.Context, l *lease.Lease, p *pair, err error) {
	if err != nil && ctx.Err() == nil {
		g.opts.Logger.Warn("holdfast: could not revoke a lost lease: "+p.stands(l, g.opts),
			"lease", names.Lease(l.ID()), "error", err)
	}
}

// endLease runs the hooks and revokes l, which deletes the entries that they have left, and the lease of its claims
// before. It returns what it could not revoke.
func (g *granter) endLease(ctx context.Context, l *lease.Lease) (*pair, error) {
	p := pairOf(l)
	policy := g.opts.Retry
	policy.Attempt = 0 // hooks and requests have timeouts of their own
	err := backoff.Retry(ctx, policy, func(ctx context.Context) error {
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

// revokeOnce revokes a lease, unless that is clientv3.NoLease. If it exists no longer, revokeOnce sets it to that.
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
