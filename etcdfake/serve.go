package etcdfake

import (
	"context"
	"errors"
	"io"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Serve registers the services of the cluster's first member with a gRPC server, for clients with a real gRPC
// connection; in a bubble use google.golang.org/grpc/test/bufconn. They are KV, Lease, Watch, and Cluster with its
// MemberList. Faults and counts are those of the link. In a bubble, give the client the Watcher of l.Client():
// clientv3's own stops virtual time, which streams of pb.WatchClient do not.
func (l *Link) Serve(server *grpc.Server) { l.ServeMember(server, l.srv.members[0]) }

// ServeMember is Serve for any member. A client has an endpoint for each.
func (l *Link) ServeMember(server *grpc.Server, m *Member) {
	pb.RegisterKVServer(server, &kvServer{link: l, to: m})
	pb.RegisterLeaseServer(server, &leaseServer{link: l, to: m})
	pb.RegisterWatchServer(server, &watchServer{link: l, to: m})
	pb.RegisterClusterServer(server, &clusterServer{link: l, to: m})
}

type kvServer struct {
	pb.UnimplementedKVServer
	link *Link
	to   *Member
}

func (k *kvServer) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return answer(ctx, k.link, k.to, "Range", r, !r.Serializable, k.link.srv.serveRange)
}

func (k *kvServer) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	return answer(ctx, k.link, k.to, "Put", r, true, k.link.srv.servePut)
}

func (k *kvServer) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return answer(ctx, k.link, k.to, "DeleteRange", r, true, k.link.srv.serveDelete)
}

func (k *kvServer) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	return answer(ctx, k.link, k.to, "Txn", r, true, k.link.srv.serveTxn)
}

func (k *kvServer) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	return answer(ctx, k.link, k.to, "Compact", r, true, k.link.srv.serveCompact)
}

type leaseServer struct {
	pb.UnimplementedLeaseServer
	link *Link
	to   *Member
}

func (s *leaseServer) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	return answer(ctx, s.link, s.to, "LeaseGrant", r, true, s.link.srv.serveGrant)
}

func (s *leaseServer) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	return answer(ctx, s.link, s.to, "LeaseRevoke", r, true, s.link.srv.serveRevoke)
}

func (s *leaseServer) LeaseTimeToLive(
	ctx context.Context, r *pb.LeaseTimeToLiveRequest,
) (*pb.LeaseTimeToLiveResponse, error) {
	return answer(ctx, s.link, s.to, "LeaseTimeToLive", r, true, s.link.srv.serveTimeToLive)
}

func (s *leaseServer) LeaseLeases(ctx context.Context, r *pb.LeaseLeasesRequest) (*pb.LeaseLeasesResponse, error) {
	return answer(ctx, s.link, s.to, "LeaseLeases", r, false, s.link.srv.serveLeases)
}

func (s *leaseServer) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		resp, err := answer(stream.Context(), s.link, s.to, "LeaseKeepAlive", r, true, s.link.srv.serveRenewal)
		if err != nil {
			return err
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

type clusterServer struct {
	pb.UnimplementedClusterServer
	link *Link
	to   *Member
}

func (s *clusterServer) MemberList(ctx context.Context, r *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	return answer(ctx, s.link, s.to, "MemberList", r, r.Linearizable, s.link.srv.serveMembers)
}

// answer serves a request that came over gRPC.
func answer[Req, Resp any](
	ctx context.Context, l *Link, to *Member, method string, r Req, needsLeader bool, serve func(Req) (Resp, error),
) (Resp, error) {
	return call(outgoing(ctx), l, to, Call{method, r}, needsLeader, func(*conn) (Resp, error) { return serve(r) })
}

// outgoing returns ctx with its metadata where requiresLeader looks.
func outgoing(ctx context.Context) context.Context {
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		return metadata.NewOutgoingContext(ctx, md)
	}
	return ctx
}
