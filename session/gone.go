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
)

// goneWait bounds the look for the reason of a loss, which is told without it
// then. It has to leave room in the lock delay.
const goneWait = 250 * time.Millisecond

// LeaseGone makes l lost because etcd says that there is no such lease, and
// returns the loss. The cause is holdfast.CauseClusterChanged if the endpoints lead to
// another cluster by now, which is an error of operation and no revocation, and
// holdfast.CauseRevoked otherwise: the answer that refused the lease does not say who
// gave it, so a read asks, for a quarter of a second at most.
func (b Base) LeaseGone(ctx context.Context, l *Lease, err error) *holdfast.LostError {
	if lost := l.Lost(); lost != nil {
		return lost
	}
	ctx, cancel := context.WithTimeout(ctx, goneWait)
	defer cancel()
	resp, _, rerr := attempt.Once(ctx, b.s.sender, attempt.Read, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return b.s.readSessionKey(ctx, l)
	})
	if rerr == nil && resp.Header.ClusterId != l.cluster {
		return l.Lose(holdfast.CauseClusterChanged, err)
	}
	return l.Lose(holdfast.CauseRevoked, err)
}

// noneFollows is why no lease will follow l, which is lost; or nil.
func (s *Session) noneFollows(l *Lease) error {
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
func (s *Session) asking(l *Lease, request string) {
	l.mu.Lock()
	last, hung := l.failure.(*unanswered)
	answered := l.failure != nil && !hung
	l.mu.Unlock()
	if !answered && (last == nil || last.request != request) {
		l.failed(&unanswered{request, s.client.Endpoints()})
	}
}

// explainFailure adds to what the last renewal said why there is no connection, if
// there is none.
func (s *Session) explainFailure(l *Lease) {
	failure := l.lastFailure()
	why := backoff.WithConnection(s.client.ActiveConnection(), failure)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == failure { // no renewal was confirmed meanwhile
		l.failure = why
	}
}
