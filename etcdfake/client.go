package etcdfake

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// kvClient is the gRPC client below clientv3's KV.
type kvClient struct {
	pb.KVClient // nil: RangeStream, which 3.7 has, is not implemented
	link        *Link
	once        bool // it repeats nothing
}

func (k kvClient) Range(ctx context.Context, r *pb.RangeRequest, _ ...grpc.CallOption) (*pb.RangeResponse, error) {
	linearizable := !r.Serializable
	if k.once {
		return once(ctx, k.link, "Range", r, linearizable, k.link.srv.serveRange)
	}
	return unary(ctx, k.link, "Range", r, repeatable, linearizable, k.link.srv.serveRange)
}

func (k kvClient) Put(ctx context.Context, r *pb.PutRequest, _ ...grpc.CallOption) (*pb.PutResponse, error) {
	return unary(ctx, k.link, "Put", r, unrepeatable, true, k.link.srv.servePut)
}

func (k kvClient) DeleteRange(
	ctx context.Context, r *pb.DeleteRangeRequest, _ ...grpc.CallOption,
) (*pb.DeleteRangeResponse, error) {
	return unary(ctx, k.link, "DeleteRange", r, unrepeatable, true, k.link.srv.serveDelete)
}

func (k kvClient) Txn(ctx context.Context, r *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	if k.once {
		return once(ctx, k.link, "Txn", r, true, k.link.srv.serveTxn)
	}
	return unary(ctx, k.link, "Txn", r, unrepeatable, true, k.link.srv.serveTxn)
}

func (k kvClient) Compact(
	ctx context.Context, r *pb.CompactionRequest, _ ...grpc.CallOption,
) (*pb.CompactionResponse, error) {
	return unary(ctx, k.link, "Compact", r, unrepeatable, true, k.link.srv.serveCompact)
}

// clusterClient is the gRPC client below clientv3's Cluster.
type clusterClient struct {
	pb.ClusterClient // nil: members are only listed
	link             *Link
}

func (c clusterClient) MemberList(
	ctx context.Context, r *pb.MemberListRequest, _ ...grpc.CallOption,
) (*pb.MemberListResponse, error) {
	return unary(ctx, c.link, "MemberList", r, repeatable, r.Linearizable, c.link.srv.serveMembers)
}

// leaseClient is the gRPC client below clientv3's Lease.
type leaseClient struct{ link *Link }

func (c leaseClient) LeaseGrant(
	ctx context.Context, r *pb.LeaseGrantRequest, _ ...grpc.CallOption,
) (*pb.LeaseGrantResponse, error) {
	return unary(ctx, c.link, "LeaseGrant", r, repeatable, true, c.link.srv.serveGrant)
}

func (c leaseClient) LeaseRevoke(
	ctx context.Context, r *pb.LeaseRevokeRequest, _ ...grpc.CallOption,
) (*pb.LeaseRevokeResponse, error) {
	return unary(ctx, c.link, "LeaseRevoke", r, repeatable, true, c.link.srv.serveRevoke)
}

func (c leaseClient) LeaseTimeToLive(
	ctx context.Context, r *pb.LeaseTimeToLiveRequest, _ ...grpc.CallOption,
) (*pb.LeaseTimeToLiveResponse, error) {
	return unary(ctx, c.link, "LeaseTimeToLive", r, repeatable, true, c.link.srv.serveTimeToLive)
}

func (c leaseClient) LeaseLeases(
	ctx context.Context, r *pb.LeaseLeasesRequest, _ ...grpc.CallOption,
) (*pb.LeaseLeasesResponse, error) {
	return unary(ctx, c.link, "LeaseLeases", r, repeatable, false, c.link.srv.serveLeases)
}

func (c leaseClient) LeaseKeepAlive(ctx context.Context, _ ...grpc.CallOption) (pb.Lease_LeaseKeepAliveClient, error) {
	on, err := c.link.connect(ctx, nil)
	if err != nil {
		return nil, err
	}
	return &renewals{ctx: ctx, link: c.link, conn: on, replies: newMailbox[result[*pb.LeaseKeepAliveResponse]]()}, nil
}

// renewals is one LeaseKeepAlive stream.
type renewals struct {
	grpc.ClientStream // nil: clientv3 calls only the methods below
	ctx               context.Context
	link              *Link
	conn              *conn
	replies           *mailbox[result[*pb.LeaseKeepAliveResponse]]
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
			s.replies.put(result[*pb.LeaseKeepAliveResponse]{resp, err})
		})
	return nil
}

func (s *renewals) Recv() (*pb.LeaseKeepAliveResponse, error) {
	for {
		if o, ok := s.replies.take(); ok {
			return o.resp, o.err
		}
		select {
		case <-s.replies.ready:
		case <-s.ctx.Done():
			return nil, status.FromContextError(s.ctx.Err()).Err()
		case <-s.conn.broken:
			return nil, errBroken
		case <-s.link.done:
			return nil, errClosing
		}
	}
}
