package session

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/retry"
)

var (
	errUnconfirmed    = errors.New("renewal not confirmed: the member that answered it is not of the term that now leads")
	errClusterChanged = errors.New("the reply came from another etcd cluster")
	errArrivedLate    = errors.New("the reply arrived after trusted-until")
)

// renew renews the lease when that is due, and again after a failure, until it is lost.
func (k *keeper) renew() {
	// The pauses of the user's policy may be too long for a renewal.
	policy := k.opts.Retry
	policy.Max = min(cmp.Or(policy.Max, backoff.DefaultMax), k.lease.Trust()/6)
	policy.Initial = min(cmp.Or(policy.Initial, backoff.DefaultInitial), policy.Max)
	policy.Attempt = 0  // requests.Once bounds each request, and the loss of the lease bounds the loop
	policy.Notify = nil // a callback could delay the renewal
	timer := time.NewTimer(k.lease.UntilRenewal())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-k.lease.Context().Done():
			return
		}
		if k.lease.UntilRenewal() <= 0 {
			// Until the loss, every failure except a verdict on the lease is retried, a refused permission as well:
			// tokens are refreshed and roles are repaired.
			began := k.opts.Clock()
			_ = backoff.Retry(k.lease.Context(), policy, func(ctx context.Context) error { return k.renewOnce(ctx, began) })
		}
		timer.Reset(k.lease.UntilRenewal())
	}
}

// renewOnce renews the lease once, by requests that are sent after began, and records the result.
func (k *keeper) renewOnce(ctx context.Context, began time.Duration) error {
	tried := time.Now()
	left, err := k.renewAndProve(ctx, began)
	if err == nil {
		k.telemetry.Renewed(tried, left)
		return nil
	}
	err = retry.WithConnection(k.client.ActiveConnection(), err)
	k.lease.Failed(err)
	if k.ctx.Err() == nil {
		k.telemetry.RenewalFailed(tried, renewalOutcome(err), etcderr.Classify(err).String())
	}
	if k.lease.Context().Err() == nil {
		err = retry.Again(err)
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
