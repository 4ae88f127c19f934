package session

import (
	"context"
	"reflect"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/internal/retry"
)

// leaseKeepAlive is the RPC that renews. Its constant in etcdserverpb is new in 3.7.
const leaseKeepAlive = "/etcdserverpb.Lease/LeaseKeepAlive"

// keepAlive renews a lease once.
//
// etcd's client would open a stream for that, which has two drawbacks. With a user and a password it logs in for
// each stream: another Raft entry, and another member that may hang. And while the stream fails with Unavailable,
// it opens the next one without a pause. So keepAlive sends a single request. On the wire that is a stream that the
// client ends after one message. It uses the present auth token, and only the session repeats it. (etcd's
// grpc-proxy, which is not supported, would end such a stream before answering.)
func keepAlive(
	ctx context.Context, cli *clientv3.Client, id clientv3.LeaseID,
) (*clientv3.LeaseKeepAliveResponse, error) {
	conn := leaseConn(cli)
	if conn == nil {
		return cli.KeepAliveOnce(ctx, id)
	}
	var resp pb.LeaseKeepAliveResponse
	err := conn.Invoke(ctx, leaseKeepAlive, &pb.LeaseKeepAliveRequest{ID: int64(id)}, &resp, grpc.WaitForReady(true))
	switch {
	case err != nil:
		return nil, clientv3.ContextError(ctx, err)
	case resp.TTL <= 0:
		return nil, rpctypes.ErrLeaseNotFound
	}
	return &clientv3.LeaseKeepAliveResponse{ResponseHeader: resp.Header, ID: clientv3.LeaseID(resp.ID), TTL: resp.TTL}, nil
}

// grantAs grants a lease with the given ID, which etcd's client has no method for, and a TTL in seconds. If the
// client's Lease is not etcd's own, etcd chooses the ID.
func grantAs(
	ctx context.Context, cli *clientv3.Client, id clientv3.LeaseID, ttl int64,
) (*clientv3.LeaseGrantResponse, error) {
	conn := leaseConn(cli)
	if conn == nil {
		return cli.Grant(ctx, ttl)
	}
	request := &pb.LeaseGrantRequest{ID: int64(id), TTL: ttl}
	resp, err := pb.NewLeaseClient(conn).LeaseGrant(ctx, request, grpc.WaitForReady(true))
	switch {
	case err != nil:
		return nil, clientv3.ContextError(ctx, err)
	case resp.Header.GetClusterId() == 0:
		return nil, retry.Final(ErrNotEtcd)
	}
	return &clientv3.LeaseGrantResponse{ResponseHeader: resp.Header, ID: clientv3.LeaseID(resp.ID), TTL: resp.TTL}, nil
}

// revokeRequest revokes a lease. While a cluster has no leader, etcd's client would repeat it 40 times a second.
func revokeRequest(ctx context.Context, cli *clientv3.Client, id clientv3.LeaseID) error {
	conn := leaseConn(cli)
	if conn == nil {
		_, err := cli.Revoke(ctx, id)
		return err
	}
	request := &pb.LeaseRevokeRequest{ID: int64(id)}
	_, err := pb.NewLeaseClient(conn).LeaseRevoke(ctx, request, grpc.WaitForReady(true))
	return clientv3.ContextError(ctx, err)
}

// leaseConn returns the connection for requests about leases, or nil if the client's Lease has been replaced: then that
// is used. (The Lease of etcd's package namespace is no replacement: it changes no request about a lease.)
func leaseConn(cli *clientv3.Client) *grpc.ClientConn {
	t := reflect.TypeOf(cli.Lease)
	if t != leaseType && (t.Kind() != reflect.Pointer || t.Elem().PkgPath() != leaseType.Elem().PkgPath()+"/namespace") {
		return nil
	}
	return cli.ActiveConnection()
}

var leaseType = reflect.TypeOf(clientv3.NewLeaseFromLeaseClient(nil, nil, time.Second))
