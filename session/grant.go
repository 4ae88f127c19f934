package session

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// A session has a pair of leases. L1 has the session key and the entries; L2 has the claims. L2 outlives L1 by minutes,
// so a claim without its entry tells that the entry went with L1, without a release. Each L1 has an L2 of its own, and
// is lost with it.
const (
	// claimsTTLs: the TTL of L2 is so many times that of L1.
	claimsTTLs = 20

	// minClaimsTTL is the shortest TTL of L2. Nothing proves a renewal of L2. If only a deposed leader has seen it, the
	// rest of the TTL must last until the next renewal.
	minClaimsTTL = 300 * time.Second
)

// claimsTTL returns the TTL of the lease of the claims.
func (o Options) claimsTTL() time.Duration { return max(claimsTTLs*o.TTL, minClaimsTTL) }

// granter obtains leases from etcd, and revokes them.
type granter struct {
	*env
	work *work
}

// await obtains a lease, and tries until ctx ends. judge turns the error of an attempt into what backoff.Retry decides
// on.
func (g *granter) await(ctx context.Context, judge func(error) error) (l *lease.Lease, err error) {
	var last atomic.Pointer[error]
	defer g.tellWait(ctx, &last)()
	err = backoff.Retry(ctx, g.Retry, func(ctx context.Context) error {
		obtained, err := g.obtain(ctx)
		if err != nil {
			last.Store(&err)
			return judge(err)
		}
		l = obtained
		return nil
	})
	return l, err
}

// obtain obtains a lease with its session key and, side by side, the lease of its claims.
func (g *granter) obtain(ctx context.Context) (*lease.Lease, error) {
	beside, cancel := context.WithCancel(ctx)
	defer cancel()
	var claims granted
	var granting sync.WaitGroup
	var refused error
	granting.Go(func() { claims, refused = g.grant(beside, g.opts.claimsTTL()) })
	l, err := g.obtainOwn(ctx)
	if l == nil {
		cancel() // nothing needs these claims
	} else { // a member may hang; by the first renewal its copies have been answered
		defer time.AfterFunc(l.UntilRenewal(), cancel).Stop()
	}
	granting.Wait()
	if l == nil {
		return nil, err
	}
	l.Claims = claims.ID
	if err == nil && refused != nil {
		err = retry.Again(fmt.Errorf("grant a lease of claims: %w", refused))
	}
	if err != nil {
		if !etcderr.Pending(err) || g.Context.Err() != nil { // etcd has answered; or Close must leave no lease behind
			g.drop(ctx, l)
		}
		return nil, err
	}
	// No holder has relied on the lease before. So a suspension that has begun is told in time from now on:
	//
	//	0 s     the Grant is sent, and is trusted for 2.7 s: the suspension begins at 1.35 s
	//	0.8 s   the reply to the Grant. The put is sent, and a renewal beside it
	//	1.54 s  the reply to the put. The renewal hangs
	//	1.88 s  the renewal is given up. The session begins, and tells that it is suspended
	l.Say(lease.Step{Action: lease.Begins, At: g.Clock()})
	return l, nil
}

// obtainOwn obtains a lease and puts its session key. It returns the lease together with the error if that put failed.
func (g *granter) obtainOwn(ctx context.Context) (*lease.Lease, error) {
	own, err := g.grant(ctx, g.opts.TTL)
	if err != nil {
		return nil, fmt.Errorf("grant a lease: %w", retry.WithConnection(g.Client.ActiveConnection(), err))
	}
	// A Grant needs no proof, as a renewal does, because it goes through Raft.
	l := lease.New(lease.Origin{
		ID: own.ID, Key: layout.SessionKey(g.Namespace, own.ID), Cluster: own.cluster, TTL: own.ttl,
		Margin: g.opts.DriftMargin, Sent: own.sent, Observer: g.observer,
	}, g.Clock)
	if err := l.Check(); err != nil {
		// The reply took so long that the lease is no longer trusted. It is left to expire.
		return nil, retry.Again(fmt.Errorf("grant a lease: %w", err))
	}
	return l, g.announce(ctx, l)
}

func newLeaseID() clientv3.LeaseID { return clientv3.LeaseID(1 + rand.Int64N(math.MaxInt64)) }

// granted is a lease that etcd has granted.
type granted struct {
	ID      clientv3.LeaseID
	cluster uint64
	ttl     time.Duration
	sent    time.Duration // by the session's clock
}

// grant sends a Grant, and copies of it until one has a reply. Surplus leases have no keys. They expire by themselves,
// and to revoke them would cost etcd more.
func (g *granter) grant(ctx context.Context, ttl time.Duration) (granted, error) {
	got, _, err := requests.Once(ctx, g.Sender, requests.Grant, func(ctx context.Context) (granted, error) {
		sent := g.Clock()
		// Each copy has an ID of its own, or a late one would bring a lost lease back:
		//
		//	0 s   the first copy hangs; the second is answered: lease 7
		//	60 s  an operator revokes lease 7: what was held is lost
		//	61 s  the first copy arrives. With the same ID, lease 7 would live again
		resp, err := grantAs(ctx, g.Client, newLeaseID(), int64(ttl/time.Second))
		if err != nil {
			return granted{}, err
		}
		return granted{resp.ID, resp.ClusterId, time.Duration(resp.TTL) * time.Second, sent}, nil
	})
	return got, err
}

// announce puts the session key of a new lease. If the Grant took long, announce sends a renewal beside the put.
func (g *granter) announce(ctx context.Context, l *lease.Lease) error {
	if !l.BeganSlowly() {
		_, err := g.keyOf(l).put(ctx, requests.Grant)
		return g.explain(err)
	}
	// Otherwise the Grant, the put and the first renewal would have to fit into one trusted time. With round trips of 5 s:
	//
	//	0 s   the Grant is sent, and is trusted until 13.5 s
	//	5 s   its reply. The put is sent, and a renewal beside it
	//	10 s  both replies: trusted until 18.5 s. The reply to a renewal sent now would come at 15 s, after the loss
	ctx, cancel := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	defer renewing.Wait()
	// A leader that has not applied the Grant yet does not know the lease, so no error is a verdict.
	renewing.Go(func() { _, _ = g.keyOf(l).renew(ctx) })
	put, err := g.keyOf(l).put(ctx, requests.Grant)
	if err != nil {
		cancel()
		return g.explain(err)
	}
	l.Prove(put.sent, put.Header.RaftTerm) // as a linearizable read would: see renewAndProve
	time.AfterFunc(l.Trust()/8, cancel)    // the renewal's member may hang
	return nil
}

// explain adds to the error of a first put of the session key what to do about it.
func (g *granter) explain(err error) error {
	switch {
	case etcderr.Classify(err) == etcderr.LeaseGone:
		return retry.Again(err) // it took too long
	case errors.Is(err, rpctypes.ErrPermissionDenied): // unlike, say, a token that has expired
		return fmt.Errorf("%w; grant it to a role of this user: "+
			"etcdctl role grant-permission --prefix ROLE readwrite %s", err, layout.SessionKeys(g.Namespace))
	}
	return err
}
