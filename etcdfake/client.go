package etcdfake

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// kvClient is what clientv3's own KV talks to.
type kvClient struct {
	pb.KVClient // nil: clientv3 calls only what is below; 3.7 has a RangeStream, which is not modelled
	link        *Link
}

func (k kvClient) Range(ctx context.Context, r *pb.RangeRequest, _ ...grpc.CallOption) (*pb.RangeResponse, error) {
	return repeat(ctx, true, func() (*pb.RangeResponse, error) {
		return call(ctx, k.link, Call{"Range", r}, !r.Serializable, func() (*pb.RangeResponse, error) { return k.link.srv.serveRange(r) })
	})
}

func (k kvClient) Put(ctx context.Context, r *pb.PutRequest, _ ...grpc.CallOption) (*pb.PutResponse, error) {
	return repeat(ctx, false, func() (*pb.PutResponse, error) {
		return call(ctx, k.link, Call{"Put", r}, true, func() (*pb.PutResponse, error) { return k.link.srv.servePut(r) })
	})
}

func (k kvClient) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest, _ ...grpc.CallOption) (*pb.DeleteRangeResponse, error) {
	return repeat(ctx, false, func() (*pb.DeleteRangeResponse, error) {
		return call(ctx, k.link, Call{"DeleteRange", r}, true, func() (*pb.DeleteRangeResponse, error) { return k.link.srv.serveDelete(r) })
	})
}

func (k kvClient) Txn(ctx context.Context, r *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	return repeat(ctx, false, func() (*pb.TxnResponse, error) {
		return call(ctx, k.link, Call{"Txn", r}, true, func() (*pb.TxnResponse, error) { return k.link.srv.serveTxn(r) })
	})
}

func (k kvClient) Compact(ctx context.Context, r *pb.CompactionRequest, _ ...grpc.CallOption) (*pb.CompactionResponse, error) {
	return repeat(ctx, false, func() (*pb.CompactionResponse, error) {
		return call(ctx, k.link, Call{"Compact", r}, true, func() (*pb.CompactionResponse, error) { return k.link.srv.serveCompact(r) })
	})
}

// leaseClient is what clientv3's own Lease talks to.
type leaseClient struct{ link *Link }

func (c leaseClient) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest, _ ...grpc.CallOption) (*pb.LeaseGrantResponse, error) {
	return repeat(ctx, true, func() (*pb.LeaseGrantResponse, error) {
		return call(ctx, c.link, Call{"LeaseGrant", r}, true, func() (*pb.LeaseGrantResponse, error) { return c.link.srv.serveGrant(r) })
	})
}

func (c leaseClient) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest, _ ...grpc.CallOption) (*pb.LeaseRevokeResponse, error) {
	return repeat(ctx, true, func() (*pb.LeaseRevokeResponse, error) {
		return call(ctx, c.link, Call{"LeaseRevoke", r}, true, func() (*pb.LeaseRevokeResponse, error) { return c.link.srv.serveRevoke(r) })
	})
}

func (c leaseClient) LeaseTimeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest, _ ...grpc.CallOption) (*pb.LeaseTimeToLiveResponse, error) {
	return repeat(ctx, true, func() (*pb.LeaseTimeToLiveResponse, error) {
		return call(ctx, c.link, Call{"LeaseTimeToLive", r}, true, func() (*pb.LeaseTimeToLiveResponse, error) { return c.link.srv.serveTimeToLive(r) })
	})
}

func (c leaseClient) LeaseLeases(ctx context.Context, r *pb.LeaseLeasesRequest, _ ...grpc.CallOption) (*pb.LeaseLeasesResponse, error) {
	return repeat(ctx, true, func() (*pb.LeaseLeasesResponse, error) {
		return call(ctx, c.link, Call{"LeaseLeases", r}, false, c.link.srv.serveLeases)
	})
}

func (c leaseClient) LeaseKeepAlive(ctx context.Context, _ ...grpc.CallOption) (pb.Lease_LeaseKeepAliveClient, error) {
	conn, err := c.link.connect(ctx)
	if err != nil {
		return nil, err
	}
	return &renewals{ctx: ctx, link: c.link, conn: conn, back: newMailbox[outcome[*pb.LeaseKeepAliveResponse]]()}, nil
}

// renewals is one stream of renewals.
type renewals struct {
	grpc.ClientStream // nil: clientv3 calls only what is below
	ctx               context.Context
	link              *Link
	conn              chan struct{}
	back              *mailbox[outcome[*pb.LeaseKeepAliveResponse]]
}

func (s *renewals) Context() context.Context { return s.ctx }

func (s *renewals) CloseSend() error { return nil }

func (s *renewals) Send(r *pb.LeaseKeepAliveRequest) error {
	if err := s.ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	s.link.srv.mu.Lock()
	defer s.link.srv.mu.Unlock()
	send(s.ctx, s.link, s.conn, Call{"LeaseKeepAlive", r}, true,
		func() (*pb.LeaseKeepAliveResponse, error) { return s.link.srv.serveRenewal(r) },
		func(resp *pb.LeaseKeepAliveResponse, err error) {
			s.back.put(outcome[*pb.LeaseKeepAliveResponse]{resp, err})
		})
	return nil
}

func (s *renewals) Recv() (*pb.LeaseKeepAliveResponse, error) {
	for {
		if o, ok := s.back.take(); ok {
			return o.resp, o.err
		}
		select {
		case <-s.back.ready:
		case <-s.ctx.Done():
			return nil, status.FromContextError(s.ctx.Err()).Err()
		case <-s.conn:
			return nil, errBroken
		case <-s.link.done:
			return nil, errClosing
		}
	}
}
