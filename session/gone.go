package session

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// goneWait bounds the search for the cause of a loss. It must be short compared with the lock delay.
const goneWait = 250 * time.Millisecond

// leaseGone makes the lease of the key lost, which etcd does not know.
func (k sessionKey) leaseGone(ctx context.Context, err error) *holdfast.LostError {
	return k.oneGone(ctx, clientv3.NoLease, err)
}

// oneGone finds out which lease etcd does not know: that of the key, or claims, the lease of its claims, unless that is
// clientv3.NoLease. It reads the key, which goes with its lease. And it reads the cluster ID, since the reply that
// refused the lease does not have it. A cluster that was set up anew knows no lease either, and calling that a
// revocation would mislead the operator.
func (k sessionKey) oneGone(ctx context.Context, claims clientv3.LeaseID, err error) *holdfast.LostError {
	if lost := k.lease.Lost(); lost != nil {
		return lost
	}
	if claims != clientv3.NoLease && claims != k.lease.Claims() {
		return nil // that is known, and another one follows
	}
	ctx, cancel := context.WithTimeout(ctx, goneWait)
	defer cancel()
	resp, _, rerr := requests.Once(ctx, k.sender, requests.Read, k.read)
	switch {
	case rerr != nil:
	case resp.Header.ClusterId != k.lease.Cluster():
		return k.lease.Lose(holdfast.CauseClusterChanged, err)
	case claims != clientv3.NoLease && k.isIn(resp) && k.lease.BlameClaims(claims):
		return nil
	}
	return k.lease.Lose(holdfast.CauseRevoked, err)
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

// noteRequest records that a request for the lease is in flight, as the failure if it is never answered. It does not
// replace the error of a reply.
func (k *keeper) noteRequest(request string) {
	failure := k.lease.Failure()
	var last *unanswered
	if failure == nil || errors.As(failure, &last) && last.request != request {
		k.lease.Failed(&unanswered{request, k.client.Endpoints()})
	}
}

// explainFailure adds to the error of the last renewal why there is no connection, if there is none.
func (k *keeper) explainFailure() {
	failure := k.lease.Failure()
	k.lease.Explain(failure, retry.WithConnection(k.client.ActiveConnection(), failure))
}
