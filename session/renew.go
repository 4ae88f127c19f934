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
	"github.com/holdfast-go/holdfast/internal/attempt"
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
	if len(l.surplus) > 0 {
		s.Base().Go(func(ctx context.Context) { s.revokeSurplus(ctx, l) })
	}
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
	if s.noneFollows(s.latest()) != nil {
		return nil
	}
	l, err := s.regrant()
	if err != nil || !s.install(l) {
		return nil // closed
	}
	return l
}

// watchdog wakes at the moments when the answer of l.Check changes, and tells.
// It sends nothing, so that nothing can keep it from telling in time; why there is
// no connection is asked of the connection, for 100 ms at most. It returns
// when l is lost, with the last state told.
func (s *Session) watchdog(l *Lease) holdfast.State {
	state := holdfast.Connected
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
		case err == nil && state == holdfast.Suspended:
			state = holdfast.Connected
			l.enter(holdfast.Connected)
			s.publish(Event{State: holdfast.Connected, Previous: holdfast.Suspended, Lease: l.id})
		case errors.Is(err, holdfast.ErrSuspended) && state == holdfast.Connected:
			state = holdfast.Suspended
			l.enter(holdfast.Suspended)
			s.explainFailure(l)
			s.publish(Event{State: holdfast.Suspended, Previous: holdfast.Connected, Lease: l.id, Err: l.lastFailure()})
		}
		timer.Reset(l.untilChange())
	}
}

// renew renews l when that is due, and at once again when it fails, until l is
// lost.
func (s *Session) renew(l *Lease) {
	// Pauses that suit other requests may be longer than there is time.
	policy := s.opts.Retry
	policy.Max = min(cmp.Or(policy.Max, backoff.DefaultMax), l.trust/6)
	policy.Initial = min(cmp.Or(policy.Initial, backoff.DefaultInitial), policy.Max)
	policy.Attempt = 0  // attempt.Once bounds each request, and the loss of l all of it
	policy.Notify = nil // a callback could take longer than there is time
	// An eighth of the trusted time lies between a renewal and the suspension.
	s.sender.SetRenewal(l.trust/8/5, l.trust/6)
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
			var ack *acknowledgement
			_ = backoff.Retry(l.ctx, policy, func(ctx context.Context) error {
				return s.renewOnce(ctx, l, &ack)
			})
		}
		timer.Reset(l.untilRenewal())
	}
}

// renewOnce renews l, once, and notes how that went. See renewAndProve for ack.
func (s *Session) renewOnce(ctx context.Context, l *Lease, ack **acknowledgement) error {
	began := time.Now()
	left, err := s.renewAndProve(ctx, l, ack)
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

// acknowledgement is a renewal that a member has answered.
type acknowledgement struct {
	sent    time.Duration // by the session's clock
	ttl     time.Duration
	cluster uint64
	term    uint64
}

// renewAndProve sends a renewal and proves that it counted. An etcd leader that
// was stopped and continued acknowledges renewals which the cluster, by now
// led by another, has never seen; so a linearizable read follows, and the
// renewal counts only if both answers carry the same Raft term: at a term T no
// such read can succeed once a quorum has voted for T+1. left is the trusted
// time that remained when the proof arrived.
//
// The proof may come as late as it likes, so an acknowledgement whose proof
// fails is left in kept for the next call. Only another term makes it worthless.
func (s *Session) renewAndProve(ctx context.Context, l *Lease, kept **acknowledgement) (left time.Duration, err error) {
	if *kept == nil {
		s.asking(l, "renewal")
		if *kept, err = s.acknowledge(ctx, l); err != nil {
			return 0, err
		}
	}
	ack := *kept
	s.asking(l, "read that confirms the renewal")
	read, err := s.prove(ctx, l)
	if err != nil {
		return 0, fmt.Errorf("confirm renewal of lease %x: %w", int64(l.id), err)
	}
	if read.Header.ClusterId != l.cluster {
		l.Lose(holdfast.CauseClusterChanged, nil)
		return 0, errClusterChanged
	}
	if read.Header.RaftTerm != ack.term {
		*kept = nil
		return 0, errUnconfirmed
	}
	if err := s.keepSessionKey(l, read); err != nil {
		return 0, err
	}
	left = l.remaining()
	if !l.confirm(ack.sent, ack.ttl) {
		return 0, errArrivedLate
	}
	return left, nil
}

// acknowledge sends a renewal of l.
func (s *Session) acknowledge(ctx context.Context, l *Lease) (*acknowledgement, error) {
	ack, _, err := attempt.Once(ctx, s.sender, attempt.Renewal, func(ctx context.Context) (*acknowledgement, error) {
		sent := s.opts.Clock()
		resp, err := s.keepAlive(ctx, l.id)
		if err != nil {
			return nil, err
		}
		return &acknowledgement{sent, time.Duration(resp.TTL) * time.Second, resp.ClusterId, resp.RaftTerm}, nil
	})
	switch {
	case backoff.Classify(err) == backoff.LeaseGone:
		s.Base().LeaseGone(ctx, l, err)
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("renew lease %x: %w", int64(l.id), err)
	case ack.cluster != l.cluster:
		l.Lose(holdfast.CauseClusterChanged, nil)
		return nil, errClusterChanged
	}
	return ack, nil
}

// prove sends a linearizable read, of the session key.
func (s *Session) prove(ctx context.Context, l *Lease) (*clientv3.GetResponse, error) {
	read, _, err := attempt.Once(ctx, s.sender, attempt.Proof, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return s.readSessionKey(ctx, l)
	})
	return read, err
}
