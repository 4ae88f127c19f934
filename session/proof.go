package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
)

var (
	errUnconfirmed = errors.New("renewal not confirmed: the member that answered it is not of the term that now leads")
	errArrivedLate = errors.New("the reply arrived after trusted-until")
)

// renewAndProve sends a renewal and, at the same time, a linearizable read of the session key. The renewal counts from
// the earlier of the two sends if both replies have the same Raft term. left is how much trusted time remained.
//
// tests/models/leasemodel searches all interleavings of this. DESIGN.md has its one gap: a member that caught up by a
// snapshot.
func (k *keeper) renewAndProve(ctx context.Context, began time.Duration) (left time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var proving sync.WaitGroup
	var unproved error
	// The lease keeps the replies. When only one of the two requests has failed, this call sends only that.
	acked, proved := k.lease.Answered(began)
	if !proved {
		proving.Go(func() { unproved = k.prove(ctx) })
	}
	if !acked {
		if err = k.acknowledge(ctx); err != nil {
			cancel() // the read proves nothing alone
			proving.Wait()
			return 0, err
		}
	}
	proving.Wait()
	// The renewal alone proves nothing: a leader that was paused acknowledges from its memory what its successor has never
	// seen. With a read of the same term, one of two is true:
	//
	//   - The member that acknowledged still led at that moment. Then the lease has its full TTL from there on.
	//   - Its successor was elected after the read, for no read succeeds at term T once a quorum has voted for T+1. The
	//     lease existed at the read, and a new leader gives every lease its full TTL.
	//
	// For example, with a lease that is trusted until 18:
	//
	//	10  A, the leader of term 5, is paused; B leads term 6 from 12 on. Nothing renews the lease there: it expires at 27
	//	13  a renewal and a read are sent. A goes on, and acknowledges the renewal: term 5
	//	13  B answers the read: term 6. The acknowledgement is dropped, and the renewal is sent again
	//	14  B acknowledges it: term 6. The lease is trusted from 13
	left, renewed := k.lease.RenewedSince(began)
	switch {
	case renewed:
		return left, nil
	case unproved != nil:
		return 0, unproved
	case errors.Is(k.lease.Check(), holdfast.ErrLost):
		return 0, errArrivedLate
	}
	return 0, errUnconfirmed
}

// acknowledge sends a renewal.
func (k *keeper) acknowledge(ctx context.Context) error {
	cluster, err := k.key.renew(ctx)
	switch {
	case etcderr.Classify(err) == etcderr.LeaseGone:
		k.key.gone(ctx, err)
		return err
	case err != nil:
		return fmt.Errorf("renew lease %x: %w", int64(k.lease.ID()), err)
	case cluster != k.lease.Cluster():
		return k.lease.Lose(holdfast.CauseClusterChanged, nil)
	}
	return nil
}

// renew sends a renewal of the lease, and records the reply if the lease's cluster sent it.
func (k sessionKey) renew(ctx context.Context) (cluster uint64, err error) {
	type reply struct {
		sent time.Duration
		*clientv3.LeaseKeepAliveResponse
	}
	got, _, err := requests.OnceWithin(ctx, k.Sender, requests.Renewal, k.lease.Remaining,
		func(ctx context.Context) (reply, error) {
			sent := k.lease.Sends(lease.Renews)
			resp, err := keepAlive(ctx, k.Client, k.lease.ID())
			return reply{sent, resp}, err
		})
	if err != nil {
		return 0, err
	}
	if got.ClusterId == k.lease.Cluster() {
		k.lease.Acknowledge(got.sent, time.Duration(got.TTL)*time.Second, got.RaftTerm)
	}
	return got.ClusterId, nil
}

// prove sends a linearizable read of the session key, and with it the errand of the lease. If the key is gone it puts
// it again.
func (k *keeper) prove(ctx context.Context) error {
	errand := k.lease.Errands.Next()
	defer k.lease.Errands.Over()
	read, _, err := requests.OnceWithin(ctx, k.Sender, requests.Proof, k.lease.Remaining,
		func(ctx context.Context) (keyRead, error) { return k.key.readWith(ctx, errand) })
	if err != nil {
		return fmt.Errorf("confirm renewal of lease %x: %w", int64(k.lease.ID()), err)
	}
	// Without its key the lease may be gone. Then nothing is proved unless etcd accepts another put of it.
	if err := k.key.check(read.GetResponse); err != nil {
		return err
	}
	if read.told {
		errand.Told(read.sent, read.yes)
	}
	k.lease.Prove(read.sent, read.Header.RaftTerm)
	return nil
}
