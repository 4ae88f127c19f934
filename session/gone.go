package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// goneWait bounds the search for the cause of a loss. It must be short compared with the lock delay.
const goneWait = 250 * time.Millisecond

// LeaseGone reads the cluster ID, since the reply that refused the lease does not have it. A cluster that was set
// up anew knows no lease either, and calling that a revocation would mislead the operator.
func (h host) LeaseGone(ctx context.Context, l *lease.Lease, err error) *holdfast.LostError {
	if lost := l.Lost(); lost != nil {
		return lost
	}
	ctx, cancel := context.WithTimeout(ctx, goneWait)
	defer cancel()
	resp, _, rerr := attempt.Once(ctx, h.sender, attempt.Read, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return h.readSessionKey(ctx, l)
	})
	if rerr == nil && resp.Header.ClusterId != l.Cluster() {
		return l.Lose(holdfast.CauseClusterChanged, err)
	}
	return l.Lose(holdfast.CauseRevoked, err)
}

// endedErr returns why no lease will follow l, which is lost, or nil if one will.
func (s *Session) endedErr(l *lease.Lease) error {
	lost := l.Lost()
	switch {
	case s.clientClosed() && lost.Cause != holdfast.CauseClientClosed:
		return fmt.Errorf("%w; before, %w", holdfast.ErrClientClosed, lost)
	case s.clientClosed() || s.opts.StayLost:
		return lost
	}
	return nil
}

// clientDone is closed when the etcd client is closed.
func (s *Session) clientDone() <-chan struct{} { return s.client.Ctx().Done() }

// clientClosed reports whether the etcd client is closed.
func (s *Session) clientClosed() bool {
	select {
	case <-s.clientDone():
		return true
	default:
		return false
	}
}

// watchClient makes the session lost as soon as its client is closed: nothing else can renew its lease.
func (s *Session) watchClient() (stop func() bool) {
	return context.AfterFunc(s.client.Ctx(), func() {
		s.latest().Lose(holdfast.CauseClientClosed, holdfast.ErrClientClosed)
	})
}

// unanswered is the failure of a renewal whose request was not answered.
type unanswered struct {
	request   string
	endpoints []string
}

func (e *unanswered) Error() string {
	return "the " + e.request + " was answered by none of " + quoteEndpoints(e.endpoints)
}

// Is makes errors.Is(err, context.DeadlineExceeded) true.
func (e *unanswered) Is(target error) bool { return target == context.DeadlineExceeded }

// noteRequest records that a request for l is in flight, as the failure if it is never answered. It does not
// replace the error of a reply.
func (s *Session) noteRequest(l *lease.Lease, request string) {
	failure := l.Failure()
	var last *unanswered
	if failure == nil || errors.As(failure, &last) && last.request != request {
		l.Failed(&unanswered{request, s.client.Endpoints()})
	}
}

// explainFailure adds to the error of the last renewal why there is no connection, if there is none.
func (s *Session) explainFailure(l *lease.Lease) {
	failure := l.Failure()
	l.Explain(failure, etcderr.WithConnection(s.client.ActiveConnection(), failure))
}
