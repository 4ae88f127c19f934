package session

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/sending"
)

// evidence is what shows that a renewal counts.
type evidence struct {
	ack   *acknowledgement
	proof *proof
}

// acknowledgement is a member's reply to a renewal.
type acknowledgement struct {
	sent    time.Duration // by the session's clock
	ttl     time.Duration
	cluster uint64
	term    uint64
}

// proof is a linearizable read of the session key.
type proof struct {
	sent time.Duration // by the session's clock
	term uint64
}

// renewAndProve sends a renewal and, at the same time, a linearizable read of the session key. The renewal alone proves
// nothing: an etcd leader that was paused and resumed acknowledges renewals which the cluster, led by another member
// by now, has never seen. It counts from the earlier of the two sends if both replies have the same Raft term:
//
//   - If the member that acknowledged it still led at that moment, the lease has its full TTL from then on.
//   - If it did not, its successor was elected after the read: no read succeeds at term T once a quorum has voted for
//     T+1. The lease existed when it was read, and a new leader gives every lease its full TTL.
//
// tests/models/leasemodel searches all interleavings of this. DESIGN.md has its one gap: a member that caught up by a
// snapshot.
//
// When one of the two fails, the reply to the other is kept for the next call. The read is not pursued without a
// renewal: while a cluster has no leader, etcd's client repeats reads by itself, many times a second. left is the
// trusted time that remained.
func (k *keeper) renewAndProve(ctx context.Context, e *evidence) (left time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var proving sync.WaitGroup
	var unproved error
	if e.proof == nil {
		proving.Go(func() { e.proof, unproved = k.prove(ctx) })
	}
	if e.ack == nil {
		k.noteRequest("renewal")
		if e.ack, err = k.acknowledge(ctx); err != nil {
			cancel()
			proving.Wait()
			return 0, err
		}
	}
	k.noteRequest("read that confirms the renewal")
	proving.Wait()
	switch {
	case unproved != nil:
		return 0, unproved
	case e.ack.term < e.proof.term:
		e.ack = nil
		return 0, errUnconfirmed
	case e.ack.term > e.proof.term:
		e.proof = nil
		return 0, errUnconfirmed
	}
	left = k.lease.Remaining()
	if !k.lease.Confirm(min(e.ack.sent, e.proof.sent), e.ack.ttl) {
		return 0, errArrivedLate
	}
	return left, nil
}

// acknowledge sends a renewal.
func (k *keeper) acknowledge(ctx context.Context) (*acknowledgement, error) {
	send := func(ctx context.Context) (*acknowledgement, error) {
		sent := k.lease.Sends(lease.Renews)
		resp, err := keepAlive(ctx, k.client, k.lease.ID())
		if err != nil {
			return nil, err
		}
		return &acknowledgement{sent, time.Duration(resp.TTL) * time.Second, resp.ClusterId, resp.RaftTerm}, nil
	}
	ack, _, err := sending.OnceWithin(ctx, k.sender, sending.Renewal, k.lease.Remaining, send)
	switch {
	case etcderr.Classify(err) == etcderr.LeaseGone:
		k.key.leaseGone(ctx, err)
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("renew lease %x: %w", int64(k.lease.ID()), err)
	case ack.cluster != k.lease.Cluster():
		k.lease.Lose(holdfast.CauseClusterChanged, nil)
		return nil, errClusterChanged
	}
	k.lease.Answered(lease.Acknowledged, ack.sent, ack.term)
	return ack, nil
}

// prove sends a linearizable read of the session key, and with it the errand of the lease. It sees to it that the key
// exists.
func (k *keeper) prove(ctx context.Context) (*proof, error) {
	type reply struct {
		sent time.Duration
		read keyRead
	}
	errand := k.lease.Errands.Next()
	defer k.lease.Errands.Over()
	send := func(ctx context.Context) (reply, error) {
		sent := k.lease.Sends(lease.Reads)
		read, err := k.key.readWith(ctx, errand)
		return reply{sent, read}, err
	}
	got, _, err := sending.OnceWithin(ctx, k.sender, sending.Proof, k.lease.Remaining, send)
	if err != nil {
		return nil, fmt.Errorf("confirm renewal of lease %x: %w", int64(k.lease.ID()), err)
	}
	if err := k.key.check(got.read.GetResponse); err != nil {
		return nil, err
	}
	if got.read.told {
		errand.Told(got.sent, got.read.yes)
	}
	k.lease.Answered(lease.Proved, got.sent, got.read.Header.RaftTerm)
	return &proof{got.sent, got.read.Header.RaftTerm}, nil
}
