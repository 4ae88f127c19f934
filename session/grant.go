package session

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// grantOnce obtains a lease and puts its session key. A Grant is trusted from its send time. It needs no proof,
// because it goes through Raft.
func (s *Session) grantOnce(ctx context.Context) (*lease.Lease, error) {
	l, err := s.grant(ctx)
	if err != nil {
		return nil, fmt.Errorf("grant a lease: %w", etcderr.WithConnection(s.client.ActiveConnection(), err))
	}
	if err := l.Check(); err != nil {
		// The reply took so long that the lease is no longer trusted: etcd's client may have repeated the
		// Grant. The lease is left to expire.
		return nil, backoff.Again(fmt.Errorf("grant a lease: %w", err))
	}
	if err := s.announce(ctx, l); err != nil {
		return nil, err
	}
	return l, nil
}

// grant sends a Grant, and further ones while it is not answered. Each has its own ID, chosen here. So the
// surplus leases can be revoked even if their Grants are never answered, and a late Grant cannot bring back a lease
// that was lost.
func (s *Session) grant(ctx context.Context) (*lease.Lease, error) {
	var mu sync.Mutex // protects ids
	var ids []clientv3.LeaseID
	l, _, err := attempt.Once(ctx, s.sender, attempt.Write, func(ctx context.Context) (*lease.Lease, error) {
		id := clientv3.LeaseID(1 + rand.Int64N(math.MaxInt64))
		mu.Lock()
		ids = append(ids, id)
		mu.Unlock()
		sent := s.opts.Clock()
		resp, err := s.grantAs(ctx, id)
		if err != nil {
			return nil, err
		}
		return lease.New(lease.Grant{
			ID: resp.ID, Cluster: resp.ClusterId, TTL: time.Duration(resp.TTL) * time.Second,
			Margin: s.opts.DriftMargin, Sent: sent,
		}, s.opts.Clock), nil
	})
	if err != nil {
		return nil, err
	}
	mu.Lock()
	defer mu.Unlock()
	if len(ids) > 1 {
		surplus := slices.DeleteFunc(ids, func(id clientv3.LeaseID) bool { return id == l.ID() })
		host{s}.Go(func(ctx context.Context) { s.revokeSurplus(ctx, surplus) }) // joined by Close
	}
	return l, nil
}

// regrant obtains the lease that follows a loss. It tries until the session or the client is closed.
func (s *Session) regrant() (*lease.Lease, error) {
	var l *lease.Lease
	policy := s.opts.Retry
	policy.Attempt = 0 // attempt.Once bounds each request
	err := backoff.Retry(s.ctx, policy, func(ctx context.Context) (err error) {
		l, err = s.grantOnce(ctx)
		switch {
		case err == nil || s.clientClosed():
			return err
		case etcderr.Classify(err) == etcderr.Unauthorised:
			s.refuse(err)
		}
		return backoff.Again(err)
	})
	return l, err
}

// refuse tells callers of Await that permission for a new lease is refused. The session keeps trying, since roles get
// repaired.
func (s *Session) refuse(err error) {
	s.mu.Lock()
	first := s.refused == nil
	s.refused = err
	s.refusals++
	close(s.replaced)
	s.replaced = make(chan struct{})
	s.mu.Unlock()
	if first {
		s.opts.Logger.Warn("holdfast: permission for a new lease is refused; the session keeps trying", "error", err)
	}
}

// revokeLost revokes a lost lease a drift margin after its loss, about when etcd would have expired it. That
// deletes its entries and makes late requests that name it fail. The wait gives holders time to notice the loss, on
// a busy machine as well, before another client can acquire. Close cuts the wait short.
func (s *Session) revokeLost(ctx context.Context, l *lease.Lease) {
	grace := time.NewTimer(l.Margin())
	defer grace.Stop()
	select {
	case <-grace.C:
		s.revoke(ctx, l)
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		s.dropLease(l)
	}
}

// revoke ends a lease in etcd, and tries until ctx ends. After that the lease expires.
func (s *Session) revoke(ctx context.Context, l *lease.Lease) {
	if err := s.endLease(ctx, l); err != nil && ctx.Err() == nil {
		s.opts.Logger.Warn("holdfast: could not revoke a lost lease; its entries stay until etcd expires it",
			"lease", holdfast.LeaseID(l.ID()).String(), "error", err)
	}
}

// revokeID revokes a lease, and tries until ctx ends. It returns nil if the lease no longer exists.
func (s *Session) revokeID(ctx context.Context, id clientv3.LeaseID) error {
	policy := s.opts.Retry
	policy.Attempt = 0 // attempt.Once bounds it
	return backoff.Retry(ctx, policy, func(ctx context.Context) error { return s.revokeOnce(ctx, id) })
}

func (s *Session) revokeOnce(ctx context.Context, id clientv3.LeaseID) error {
	_, _, err := attempt.Once(ctx, s.sender, attempt.Write, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.revokeRequest(ctx, id)
	})
	if etcderr.Classify(err) == etcderr.LeaseGone {
		return nil
	}
	return err
}

// revokeSurplus revokes the leases that were granted beside the one in use. They have no keys, so one that cannot be
// revoked, or is granted even later, does no harm and expires.
func (s *Session) revokeSurplus(ctx context.Context, surplus []clientv3.LeaseID) {
	for _, id := range surplus {
		_ = s.revokeID(ctx, id)
	}
}
