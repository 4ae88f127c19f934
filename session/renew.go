package session

import (
	"cmp"
	"context"
	"errors"
	"sync"
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
	// An eighth of the trusted time lies between a renewal and the suspension.
	s.sender.SetRenewal(l.Trust()/8/5, l.Trust()/6)
	timer := time.NewTimer(l.UntilRenewal())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-l.Context().Done():
			return
		}
		if l.UntilRenewal() <= 0 {
			var e evidence
			_ = backoff.Retry(l.Context(), policy, func(ctx context.Context) error {
				return s.renewOnce(ctx, l, policy, &e)
			})
		}
		timer.Reset(l.UntilRenewal())
	}
}

// renewOnce sends a renewal and, at the same time, a linearizable read of the session key. The renewal alone proves
// nothing: an etcd leader that was paused and resumed acknowledges renewals which the cluster, led by another member
// by now, has never seen. It counts from the earlier of the two sends if both replies have the same Raft term:
//
//   - If the member that acknowledged it still led at that moment, the lease has its full TTL from then on.
//   - If it did not, its successor was elected after the read: no read succeeds at term T once a quorum has voted for
//     T+1. The lease existed when it was read, and a new leader gives every lease its full TTL.
//
// Both are repeated until the loss, each by itself, and a reply is kept while the other one is missing.
func (s *Session) renewOnce(ctx context.Context, l *lease.Lease, policy backoff.Policy, e *evidence) error {
	began := time.Now()
	var proving sync.WaitGroup
	if e.proof == nil {
		proving.Go(func() { e.proof = untilAnswered(ctx, s, l, policy, s.prove) })
	}
	if e.ack == nil {
		s.noteRequest(l, "renewal")
		e.ack = untilAnswered(ctx, s, l, policy, s.acknowledge)
	}
	s.noteRequest(l, "read that confirms the renewal")
	proving.Wait()
	switch {
	case e.ack == nil || e.proof == nil:
		return ctx.Err() // l is lost
	case e.ack.term < e.proof.term:
		e.ack = nil
		return s.renewalFailed(l, began, errUnconfirmed)
	case e.ack.term > e.proof.term:
		e.proof = nil
		return s.renewalFailed(l, began, errUnconfirmed)
	}
	left := l.Remaining()
	if !l.Confirm(min(e.ack.sent, e.proof.sent), e.ack.ttl) {
		return s.renewalFailed(l, began, errArrivedLate)
	}
	s.telemetry.Renewed(began, left)
	return nil
}

// untilAnswered repeats a request for l. It returns nil if l is lost before. Every failure except a verdict on the
// lease is retried, a refused permission as well: tokens are refreshed and roles are repaired.
func untilAnswered[T any](
	ctx context.Context, s *Session, l *lease.Lease, policy backoff.Policy,
	send func(context.Context, *lease.Lease) (*T, error),
) (reply *T) {
	_ = backoff.Retry(ctx, policy, func(ctx context.Context) error {
		began := time.Now()
		v, err := send(ctx, l)
		if err != nil {
			return s.renewalFailed(l, began, err)
		}
		reply = v
		return nil
	})
	return reply
}

// renewalFailed records a failure, and returns err so that backoff.Retry goes on unless l is lost.
func (s *Session) renewalFailed(l *lease.Lease, began time.Time, err error) error {
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
