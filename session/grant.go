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

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// grantOnce obtains a lease. The Grant is trusted from its send time; it needs
// no confirmation, being a Raft entry itself.
func (s *Session) grantOnce(ctx context.Context) (*lease.Lease, error) {
	l, err := s.grant(ctx)
	if err != nil {
		return nil, fmt.Errorf("grant a lease: %w", backoff.WithConnection(s.client.ActiveConnection(), err))
	}
	if err := l.Check(); err != nil {
		// etcd's client may have repeated the Grant by itself and taken its
		// time: a lease of unknown age is left to expire.
		return nil, backoff.Again(fmt.Errorf("grant a lease: %w", err))
	}
	if err := s.announce(ctx, l); err != nil {
		return nil, err
	}
	return l, nil
}

// grant sends a Grant, and again beside it when it hangs. Each is for a lease of
// its own, with an ID that is chosen here: so the leases that are not needed can
// be revoked, although their Grants may never be answered, and a Grant that
// arrives late cannot bring back a lease that was lost.
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
			ID: resp.ID, Cluster: resp.ClusterId, TTL: time.Duration(resp.TTL) * time.Second, Margin: s.opts.DriftMargin, Sent: sent,
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

// regrant obtains the lease that follows a loss, for as long as it takes.
func (s *Session) regrant() (*lease.Lease, error) {
	var l *lease.Lease
	policy := s.opts.Retry
	policy.Attempt = 0 // attempt.Once bounds each request
	err := backoff.Retry(s.ctx, policy, func(ctx context.Context) (err error) {
		l, err = s.grantOnce(ctx)
		switch {
		case err == nil || s.clientClosed():
			return err
		case backoff.Classify(err) == backoff.Unauthorised:
			s.refuse(err)
		}
		return backoff.Again(err)
	})
	return l, err
}

// refuse tells those who wait for a new lease that permission for it is refused.
// The session goes on trying: roles get mended.
func (s *Session) refuse(err error) {
	s.mu.Lock()
	first := s.refused == nil
	s.refused = err
	s.refusals++
	close(s.replaced)
	s.replaced = make(chan struct{})
	s.mu.Unlock()
	if first {
		s.opts.Logger.Warn("holdfast: permission for a new lease is refused; it is tried again until it is granted", "error", err)
	}
}

// revokeLost ends a lost lease in etcd, which removes its entries and keeps late
// requests from putting new ones. It waits for as long as the drift margin
// first, about when etcd would have let go by itself: those who have just been
// told get the time to hear it, on a busy machine too, before somebody else is
// let in. Close cuts that short, and leaves no lease behind.
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

// revoke ends a lease in etcd. It gives up when ctx ends: then the lease ends by
// itself.
func (s *Session) revoke(ctx context.Context, l *lease.Lease) {
	if err := s.endLease(ctx, l); err != nil && ctx.Err() == nil {
		s.opts.Logger.Warn("holdfast: a lost lease could not be revoked; its entries stay until etcd expires it",
			"lease", fmt.Sprintf("%x", int64(l.ID())), "error", err)
	}
}

// revokeID returns nil when there is no such lease any more.
func (s *Session) revokeID(ctx context.Context, id clientv3.LeaseID) error {
	policy := s.opts.Retry
	policy.Attempt = 0 // attempt.Once bounds it
	return backoff.Retry(ctx, policy, func(ctx context.Context) error { return s.revokeOnce(ctx, id) })
}

func (s *Session) revokeOnce(ctx context.Context, id clientv3.LeaseID) error {
	_, _, err := attempt.Once(ctx, s.sender, attempt.Write, func(ctx context.Context) (*clientv3.LeaseRevokeResponse, error) {
		return s.client.Revoke(ctx, id)
	})
	if backoff.Classify(err) == backoff.LeaseGone {
		return nil
	}
	return err
}

// revokeSurplus ends the leases that were granted beside the one that is used.
// They hold no keys: one that cannot be revoked, or is granted later still, costs
// nothing and ends after its TTL.
func (s *Session) revokeSurplus(ctx context.Context, surplus []clientv3.LeaseID) {
	for _, id := range surplus {
		_ = s.revokeID(ctx, id)
	}
}
