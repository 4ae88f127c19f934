package session

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// goneWait bounds the look for the reason of a loss, which is told without it
// then. It has to leave room in the lock delay.
const goneWait = 250 * time.Millisecond

// LeaseGone asks for the cluster ID, since the answer that refused the lease does
// not have it. A cluster that was set up anew knows no lease either, and that is
// an error of operation and no revocation.
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

// noneFollows is why no lease will follow l, which is lost; or nil.
func (s *Session) noneFollows(l *lease.Lease) error {
	lost := l.Lost()
	switch {
	case s.clientClosed() && lost.Cause != holdfast.CauseClientClosed:
		return fmt.Errorf("%w; before, %w", holdfast.ErrClientClosed, lost)
	case s.clientClosed() || s.opts.StayLost:
		return lost
	}
	return nil
}

// clientDone is closed when the etcd client is closed; nil if that cannot be
// told, of a client that was put together by hand.
func (s *Session) clientDone() <-chan struct{} {
	if ctx := s.client.Ctx(); ctx != nil {
		return ctx.Done()
	}
	return nil
}

// clientClosed reports whether the etcd client is closed, which is final.
func (s *Session) clientClosed() bool {
	select {
	case <-s.clientDone():
		return true
	default:
		return false
	}
}

// watchClient has the session lost at once when its client is closed: nothing can
// renew its lease any more.
func (s *Session) watchClient() (stop func() bool) {
	if s.client.Ctx() == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(s.client.Ctx(), func() { s.latest().Lose(holdfast.CauseClientClosed, holdfast.ErrClientClosed) })
}

// unanswered is the reason of a loss when nothing has answered.
type unanswered struct {
	request   string
	endpoints []string
}

func (e *unanswered) Error() string {
	const most = 5
	named := strings.Join(e.endpoints[:min(len(e.endpoints), most)], ", ")
	if n := len(e.endpoints) - most; n > 0 {
		named += fmt.Sprintf(" and %d more", n)
	}
	return "the " + e.request + " was answered by none of " + named
}

// Is makes errors.Is(err, context.DeadlineExceeded) true.
func (e *unanswered) Is(target error) bool { return target == context.DeadlineExceeded }

// asking notes that a request for l is under way, to any of the endpoints, for the
// case that l is lost before there is an answer. It does not replace an answer.
func (s *Session) asking(l *lease.Lease, request string) {
	failure := l.Failure()
	last, hung := failure.(*unanswered)
	if failure == nil || hung && last.request != request {
		l.Failed(&unanswered{request, s.client.Endpoints()})
	}
}

// explainFailure adds to what the last renewal said why there is no connection, if
// there is none.
func (s *Session) explainFailure(l *lease.Lease) {
	failure := l.Failure()
	l.Explain(failure, backoff.WithConnection(s.client.ActiveConnection(), failure))
}
