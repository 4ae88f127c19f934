package etcdfake

import (
	"context"
	"errors"
	"io"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Serve registers the cluster's KV and Lease services with a gRPC server, for clients with a real gRPC connection; in a
// bubble use google.golang.org/grpc/test/bufconn. Faults and counts are those of the link. Watches are not served: give
// the client the Watcher of l.Client().
func (l *Link) Serve(server *grpc.Server) {
	pb.RegisterKVServer(server, &kvServer{link: l})
	pb.RegisterLeaseServer(server, &leaseServer{link: l})
}

type kvServer struct {
	pb.UnimplementedKVServer
	link *Link
}

func (k *kvServer) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return answer(ctx, k.link, "Range", r, !r.Serializable, k.link.srv.serveRange)
}

func (k *kvServer) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	return answer(ctx, k.link, "Put", r, true, k.link.srv.servePut)
}

func (k *kvServer) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return answer(ctx, k.link, "DeleteRange", r, true, k.link.srv.serveDelete)
}

func (k *kvServer) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	return answer(ctx, k.link, "Txn", r, true, k.link.srv.serveTxn)
}

type leaseServer struct {
	pb.UnimplementedLeaseServer
	link *Link
}

func (s *leaseServer) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	return answer(ctx, s.link, "LeaseGrant", r, true, s.link.srv.serveGrant)
}

func (s *leaseServer) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	return answer(ctx, s.link, "LeaseRevoke", r, true, s.link.srv.serveRevoke)
}

func (s *leaseServer) LeaseTimeToLive(
	ctx context.Context, r *pb.LeaseTimeToLiveRequest,
) (*pb.LeaseTimeToLiveResponse, error) {
	return answer(ctx, s.link, "LeaseTimeToLive", r, true, s.link.srv.serveTimeToLive)
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
		resp, err := answer(stream.Context(), s.link, "LeaseKeepAlive", r, true, s.link.srv.serveRenewal)
		if err != nil {
			return err
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

// answer serves a request that came over gRPC.
func answer[Req, Resp any](
	ctx context.Context, l *Link, method string, r Req, needsLeader bool, serve func(Req) (Resp, error),
) (Resp, error) {
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md) // where requiresLeader looks
	}
	return call(ctx, l, Call{method, r}, needsLeader, func() (Resp, error) { return serve(r) })
}
