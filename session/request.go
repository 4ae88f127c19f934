package session

import (
	"context"
	"reflect"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// leaseKeepAlive is the RPC that renews. Its constant in etcdserverpb is new in 3.7.
const leaseKeepAlive = "/etcdserverpb.Lease/LeaseKeepAlive"

// keepAlive renews a lease once.
//
// etcd's client would open a stream for it, which has two drawbacks. It logs in
// anew for each stream if it has a user and a password: a Raft entry more, and
// another member that may hang. And while the stream fails with Unavailable it
// opens the next without a pause. So the renewal goes out as a single request:
// on the wire that is a stream, too, which the client's side ends after one
// message. It uses the token that is there, and only the session repeats it.
// (etcd's grpc-proxy, which is not supported, would end such a stream before it
// has answered.)
func (s *Session) keepAlive(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	conn := s.leaseConn()
	if conn == nil {
		return s.client.KeepAliveOnce(ctx, id)
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

// grantAs grants a lease with that ID, which etcd's client cannot ask for, or
// with another one where the client's Lease is not etcd's own.
func (s *Session) grantAs(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseGrantResponse, error) {
	ttl := int64(s.opts.TTL / time.Second)
	conn := s.leaseConn()
	if conn == nil {
		return s.client.Grant(ctx, ttl)
	}
	resp, err := pb.NewLeaseClient(conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: int64(id), TTL: ttl}, grpc.WaitForReady(true))
	if err != nil {
		return nil, clientv3.ContextError(ctx, err)
	}
	return &clientv3.LeaseGrantResponse{ResponseHeader: resp.Header, ID: clientv3.LeaseID(resp.ID), TTL: resp.TTL}, nil
}

// leaseConn is the connection to send requests about leases on; nil if the
// client's Lease is to be used because it has been put in the place of etcd's
// own. (The one of etcd's package namespace passes on what names a lease and no
// key.)
func (s *Session) leaseConn() *grpc.ClientConn {
	t := reflect.TypeOf(s.client.Lease)
	if t != leaseType && (t.Kind() != reflect.Pointer || t.Elem().PkgPath() != leaseType.Elem().PkgPath()+"/namespace") {
		return nil
	}
	return s.client.ActiveConnection()
}

var leaseType = reflect.TypeOf(clientv3.NewLeaseFromLeaseClient(nil, nil, time.Second))
