package session

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/lease"
)

var (
	errUnconfirmed    = errors.New("renewal not confirmed: the member that answered it is not of the term that now leads")
	errClusterChanged = errors.New("the reply came from another etcd cluster")
	errArrivedLate    = errors.New("the reply arrived after trusted-until")
)

// run keeps one lease after the other alive until no further one will follow.
func (s *Session) run(first *lease.Lease) {
	defer close(s.ended)
	for l := first; l != nil; l = s.successor() {
		if !s.guard(l) {
			return
		}
		host{s}.Go(func(ctx context.Context) { s.revokeLost(ctx, l) })
	}
}

// guard renews l and publishes its changes of state until it is lost. It returns false if Close caused the loss:
// then Close publishes it and revokes the lease.
func (s *Session) guard(l *lease.Lease) bool {
	renewals := make(chan struct{})
	go func() { // joined below; ends with l
		defer close(renewals)
		s.renew(l)
	}()
	last := s.watchdog(l)
	closed := s.ctx.Err() != nil
	if !closed {
		s.publishLoss(l, last)
	}
	<-renewals
	return !closed
}

// successor obtains the lease that follows a loss and installs it. It returns nil if no lease will follow.
func (s *Session) successor() *lease.Lease {
	if s.endedErr(s.latest()) != nil {
		return nil
	}
	l, err := s.regrant()
	if err != nil || !s.install(l) {
		return nil // closed
	}
	return l
}

// watchdog wakes when the result of l.Check changes, and publishes the new state. It sends no RPC that could delay it.
// (For the reason of a suspension it asks the connection, for 100 ms at most.) When l is lost it returns the last state
// published.
func (s *Session) watchdog(l *lease.Lease) holdfast.State {
	state := holdfast.Connected
	timer := time.NewTimer(l.UntilChange())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-l.Renewed():
		case <-l.Context().Done():
			return state
		}
		switch err := l.Check(); {
		case err == nil && state == holdfast.Suspended:
			state = holdfast.Connected
			l.Enter(holdfast.Connected)
			s.publish(Event{State: holdfast.Connected, Previous: holdfast.Suspended, Lease: l.ID()})
		case errors.Is(err, holdfast.ErrSuspended) && state == holdfast.Connected:
			state = holdfast.Suspended
			l.Enter(holdfast.Suspended)
			s.explainFailure(l)
			s.publish(Event{State: holdfast.Suspended, Previous: holdfast.Connected, Lease: l.ID(), Err: l.Failure()})
		}
		timer.Reset(l.UntilChange())
	}
}

// renew renews l when that is due, and again after a failure, until l is lost.
func (s *Session) renew(l *lease.Lease) {
	// The pauses of the user's policy may be too long for a renewal.
	policy := s.opts.Retry
	policy.Max = min(cmp.Or(policy.Max, backoff.DefaultMax), l.Trust()/6)
	policy.Initial = min(cmp.Or(policy.Initial, backoff.DefaultInitial), policy.Max)
	policy.Attempt = 0  // attempt.Once bounds each request, and the loss of l bounds the loop
	policy.Notify = nil // a callback could delay the renewal
	// An eighth of the trusted time lies between a renewal and the suspension. While etcd is slow, a copy is
	// sent after a third of the trusted time at the latest, which leaves time for its reply before the loss.
	s.sender.SetRenewal(l.Trust()/8/5, l.Trust()/3)
	timer := time.NewTimer(l.UntilRenewal())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-l.Context().Done():
			return
		}
		if l.UntilRenewal() <= 0 {
			// Until the loss, every failure except a verdict on the lease is retried, a refused permission as well:
			// tokens are refreshed and roles are repaired.
			var e evidence
			_ = backoff.Retry(l.Context(), policy, func(ctx context.Context) error { return s.renewOnce(ctx, l, &e) })
		}
		timer.Reset(l.UntilRenewal())
	}
}

// renewOnce renews l once and records the result. See renewAndProve for e.
func (s *Session) renewOnce(ctx context.Context, l *lease.Lease, e *evidence) error {
	began := time.Now()
	left, err := s.renewAndProve(ctx, l, e)
	if err == nil {
		s.telemetry.Renewed(began, left)
		return nil
	}
	err = etcderr.WithConnection(s.client.ActiveConnection(), err)
	l.Failed(err)
	if s.ctx.Err() == nil {
		s.telemetry.RenewalFailed(began, renewalOutcome(err), etcderr.Classify(err).String())
	}
	if l.Context().Err() == nil {
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
	case etcderr.Classify(err) == etcderr.LeaseGone:
		return "lease gone"
	default:
		return "failed"
	}
}
