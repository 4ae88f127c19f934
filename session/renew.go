package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/backoff"
)

var (
	errUnconfirmed    = errors.New("renewal not confirmed: the member that answered it is not of the term that now leads")
	errClusterChanged = errors.New("the answer came from another etcd cluster")
	errArrivedLate    = errors.New("the answer arrived after trusted-until")
)

// run keeps the session on a live lease until Close: it guards one to its end
// and goes on with the next.
func (s *Session) run(first *Lease) {
	for l := first; l != nil; l = s.successor() {
		if !s.guard(l) {
			return
		}
		s.Base().Go(func(ctx context.Context) { s.revokeLost(ctx, l) })
	}
}

// guard renews l and tells its changes of state, until it is lost. It reports
// false when that was Close's doing, who tells it and revokes.
func (s *Session) guard(l *Lease) bool {
	renewals := make(chan struct{})
	go func() { // joined below; ends with l
		defer close(renewals)
		s.renew(l)
	}()
	last := s.watchdog(l)
	closed := s.ctx.Err() != nil
	if !closed {
		s.tellLost(l, last)
	}
	<-renewals
	return !closed
}

// successor gets the lease that follows a loss and makes it the session's; nil
// if none is to follow.
func (s *Session) successor() *Lease {
	if s.opts.StayLost {
		return nil
	}
	l, err := s.regrant()
	if err != nil || !s.install(l) {
		return nil // closed
	}
	return l
}

// watchdog wakes at the moments when the answer of l.Check changes, and tells.
// It does no RPC, so that nothing can keep it from telling in time. It returns
// when l is lost, with the last state told.
func (s *Session) watchdog(l *Lease) State {
	state := Connected
	timer := time.NewTimer(l.untilChange())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-l.renewed:
		case <-l.ctx.Done():
			return state
		}
		switch err := l.Check(); {
		case err == nil && state == Suspended:
			state = Connected
			l.enter(Connected)
			s.publish(Event{State: Connected, Previous: Suspended, Lease: l.id})
		case errors.Is(err, ErrSuspended) && state == Connected:
			state = Suspended
			l.enter(Suspended)
			s.publish(Event{State: Suspended, Previous: Connected, Lease: l.id, Err: l.lastFailure()})
		}
		timer.Reset(l.untilChange())
	}
}

// renew renews l at a third of its TTL, and without waiting for the next third
// when that fails, until l is lost.
func (s *Session) renew(l *Lease) {
	policy := s.opts.Retry
	policy.Attempt = min(policy.Attempt, l.interval)
	// Pauses that suit other requests may be longer than there is time.
	policy.Max = min(cmp.Or(policy.Max, backoff.DefaultMax), l.interval/2)
	policy.Initial = min(cmp.Or(policy.Initial, backoff.DefaultInitial), policy.Max)
	timer := time.NewTimer(l.untilRenewal())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-l.ctx.Done():
			return
		}
		if l.untilRenewal() <= 0 {
			// Until the deadline every failure but a verdict on the lease is
			// worth another try, a refused permission too: tokens are
			// refreshed and roles are mended.
			_ = backoff.Retry(l.ctx, policy, func(ctx context.Context) error {
				return s.renewOnce(ctx, l)
			})
		}
		timer.Reset(l.untilRenewal())
	}
}

// renewOnce renews l, once, and notes how that went.
func (s *Session) renewOnce(ctx context.Context, l *Lease) error {
	began := time.Now()
	left, err := s.renewAndProve(ctx, l)
	if err == nil {
		s.telemetry.Renewed(began, left)
		return nil
	}
	err = backoff.WithConnection(s.client.ActiveConnection(), err)
	l.failed(err)
	if s.ctx.Err() == nil {
		s.telemetry.RenewalFailed(began, renewalOutcome(err), backoff.Classify(err).String())
	}
	if l.ctx.Err() == nil {
		err = backoff.Again(err)
	}
	return err
}

func renewalOutcome(err error) string {
	switch {
	case errors.Is(err, errUnconfirmed):
		return "unconfirmed"
	case errors.Is(err, errArrivedLate):
		return "late"
	case errors.Is(err, errClusterChanged):
		return "cluster changed"
	case backoff.Classify(err) == backoff.LeaseGone:
		return "lease gone"
	default:
		return "failed"
	}
}

// renewAndProve sends one renewal and proves that it counted. An etcd leader that
// was stopped and continued acknowledges renewals which the cluster, by now
// led by another, has never seen; so a linearizable read follows, and the
// renewal counts only if both answers carry the same Raft term: at a term T no
// such read can succeed once a quorum has voted for T+1. left is the trusted
// time that remained when the proof arrived.
func (s *Session) renewAndProve(ctx context.Context, l *Lease) (left time.Duration, err error) {
	sent := s.opts.Clock()
	// KeepAliveOnce repeats by itself, without a pause, for as long as it is
	// told Unavailable: it is ctx, which bounds one attempt, that stops it.
	renewal, err := s.client.KeepAliveOnce(ctx, l.id)
	if backoff.Classify(err) == backoff.LeaseGone {
		s.Base().LeaseGone(ctx, l, err)
		return 0, err
	}
	if err != nil {
		return 0, fmt.Errorf("renew lease %x: %w", int64(l.id), err)
	}
	if renewal.ClusterId != l.cluster {
		l.Lose(CauseClusterChanged, nil)
		return 0, errClusterChanged
	}
	read, err := s.readSessionKey(ctx, l)
	if err != nil {
		return 0, fmt.Errorf("confirm renewal of lease %x: %w", int64(l.id), err)
	}
	if read.Header.ClusterId != l.cluster {
		l.Lose(CauseClusterChanged, nil)
		return 0, errClusterChanged
	}
	if read.Header.RaftTerm != renewal.RaftTerm {
		return 0, errUnconfirmed
	}
	if err := s.keepSessionKey(l, read); err != nil {
		return 0, err
	}
	left = l.remaining()
	if !l.confirm(sent, time.Duration(renewal.TTL)*time.Second) {
		return 0, errArrivedLate
	}
	return left, nil
}

// grantOnce obtains a lease. The Grant is trusted from its send time; it needs
// no confirmation, being a Raft entry itself.
func (s *Session) grantOnce(ctx context.Context) (*Lease, error) {
	sent := s.opts.Clock()
	resp, err := s.client.Grant(ctx, int64(s.opts.TTL/time.Second))
	if err != nil {
		return nil, fmt.Errorf("grant a lease: %w", backoff.WithConnection(s.client.ActiveConnection(), err))
	}
	l := newLease(resp.ID, resp.ClusterId, time.Duration(resp.TTL)*time.Second, s.opts.DriftMargin, sent, s.opts.Clock)
	if err := l.Check(); err != nil {
		// The client repeats a Grant by itself and may have taken its time:
		// a lease of unknown age is left to expire.
		return nil, backoff.Again(fmt.Errorf("grant a lease: %w", err))
	}
	if err := s.announce(ctx, l); err != nil {
		return nil, err
	}
	return l, nil
}

// regrant obtains the lease that follows a loss, for as long as it takes.
func (s *Session) regrant() (*Lease, error) {
	var l *Lease
	err := backoff.Retry(s.ctx, s.opts.Retry, func(ctx context.Context) (err error) {
		if l, err = s.grantOnce(ctx); err != nil {
			return backoff.Again(err)
		}
		return nil
	})
	return l, err
}

// revokeLost ends a lost lease in etcd, which removes its entries and keeps late
// requests from putting new ones. It waits for as long as the drift margin
// first, about when etcd would have let go by itself: those who have just been
// told get the time to hear it, on a busy machine too, before somebody else is
// let in. Close cuts that short, and leaves no lease behind.
func (s *Session) revokeLost(ctx context.Context, l *Lease) {
	grace := time.NewTimer(l.margin)
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
func (s *Session) revoke(ctx context.Context, l *Lease) {
	err := backoff.Retry(ctx, s.opts.Retry, func(ctx context.Context) error {
		_, err := s.client.Revoke(ctx, l.id)
		return err
	})
	if err != nil && ctx.Err() == nil && backoff.Classify(err) != backoff.LeaseGone {
		s.opts.Logger.Warn("holdfast: a lost lease could not be revoked; its entries stay until etcd expires it",
			"lease", fmt.Sprintf("%x", int64(l.id)), "error", err)
	}
}
