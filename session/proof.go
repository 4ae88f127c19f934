package session

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/lease"
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

// prove sends a linearizable read of the session key, and sees to it that the key exists.
func (s *Session) prove(ctx context.Context, l *lease.Lease) (*proof, error) {
	type reply struct {
		sent time.Duration
		read *clientv3.GetResponse
	}
	got, _, err := attempt.Once(ctx, s.sender, attempt.Proof, func(ctx context.Context) (reply, error) {
		sent := s.opts.Clock()
		read, err := s.readSessionKey(ctx, l)
		return reply{sent, read}, err
	})
	if err != nil {
		return nil, fmt.Errorf("confirm renewal of lease %x: %w", int64(l.ID()), err)
	}
	if err := s.checkSessionKey(l, got.read); err != nil {
		return nil, err
	}
	return &proof{got.sent, got.read.Header.RaftTerm}, nil
}
