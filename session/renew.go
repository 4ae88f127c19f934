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
	"github.com/holdfast-go/holdfast/internal/attempt"
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
			// Until the loss, every failure except a verdict on the lease is retried, a refused permission as well:
			// tokens are refreshed and roles are repaired.
			var ack *acknowledgement
			_ = backoff.Retry(l.Context(), policy, func(ctx context.Context) error {
				return s.renewOnce(ctx, l, &ack)
			})
		}
		timer.Reset(l.UntilRenewal())
	}
}

// renewOnce renews l once and records the result. See renewAndProve for ack.
func (s *Session) renewOnce(ctx context.Context, l *lease.Lease, ack **acknowledgement) error {
	began := time.Now()
	left, err := s.renewAndProve(ctx, l, ack)
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

// acknowledgement is a member's reply to a renewal.
type acknowledgement struct {
	sent    time.Duration // by the session's clock
	ttl     time.Duration
	cluster uint64
	term    uint64
}

// renewAndProve sends a renewal and proves that it counts. A deposed etcd leader that was paused and resumed
// acknowledges renewals which the cluster has never seen. So a linearizable read follows, and the renewal counts only
// if both replies have the same Raft term: once a quorum has voted for term T+1, no such read succeeds at term T. left
// is the trusted time that remained when the proof arrived.
//
// A late proof is as good, so an acknowledgement whose proof fails is left in kept for the next call. Only a proof at
// another term makes it worthless.
func (s *Session) renewAndProve(
	ctx context.Context, l *lease.Lease, kept **acknowledgement,
) (left time.Duration, err error) {
	if *kept == nil {
		s.noteRequest(l, "renewal")
		if *kept, err = s.acknowledge(ctx, l); err != nil {
			return 0, err
		}
	}
	ack := *kept
	s.noteRequest(l, "read that confirms the renewal")
	read, err := s.prove(ctx, l)
	if err != nil {
		return 0, fmt.Errorf("confirm renewal of lease %x: %w", int64(l.ID()), err)
	}
	if read.Header.ClusterId != l.Cluster() {
		l.Lose(holdfast.CauseClusterChanged, nil)
		return 0, errClusterChanged
	}
	if read.Header.RaftTerm != ack.term {
		*kept = nil
		return 0, errUnconfirmed
	}
	if err := s.checkSessionKey(l, read); err != nil {
		return 0, err
	}
	left = l.Remaining()
	if !l.Confirm(ack.sent, ack.ttl) {
		return 0, errArrivedLate
	}
	return left, nil
}

// acknowledge sends a renewal of l.
func (s *Session) acknowledge(ctx context.Context, l *lease.Lease) (*acknowledgement, error) {
	ack, _, err := attempt.Once(ctx, s.sender, attempt.Renewal, func(ctx context.Context) (*acknowledgement, error) {
		sent := s.opts.Clock()
		resp, err := s.keepAlive(ctx, l.ID())
		if err != nil {
			return nil, err
		}
		return &acknowledgement{sent, time.Duration(resp.TTL) * time.Second, resp.ClusterId, resp.RaftTerm}, nil
	})
	switch {
	case etcderr.Classify(err) == etcderr.LeaseGone:
		host{s}.LeaseGone(ctx, l, err)
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("renew lease %x: %w", int64(l.ID()), err)
	case ack.cluster != l.Cluster():
		l.Lose(holdfast.CauseClusterChanged, nil)
		return nil, errClusterChanged
	}
	return ack, nil
}

// prove sends a linearizable read of the session key.
func (s *Session) prove(ctx context.Context, l *lease.Lease) (*clientv3.GetResponse, error) {
	read, _, err := attempt.Once(ctx, s.sender, attempt.Proof, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return s.readSessionKey(ctx, l)
	})
	return read, err
}
