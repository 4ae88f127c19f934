package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/internal/watching"
)

// A session sends two things past etcd's client: requests about leases, and the streams of its watches.

// ErrNotEtcd is New's error if the server serves a part of etcd's API and keeps no leases, as kine does, which k3s has
// in place of etcd: all keys with the same TTL have one lease there, and no lease can be renewed.
var ErrNotEtcd = errors.New("the server is not etcd: it belongs to no cluster, as that of kine (k3s), which keeps no " +
	"leases; give the endpoints of an etcd cluster")

// leaseKeepAlive is the RPC of a renewal. Its constant in etcdserverpb is new in 3.7.
const leaseKeepAlive = "/etcdserverpb.Lease/LeaseKeepAlive"

// keepAlive renews a lease by a single request: on the wire a stream of one message. It uses the present auth token,
// and only the session repeats it. (etcd's grpc-proxy, which is not supported, ends a stream of one message before it
// answers.)
func keepAlive(
	ctx context.Context, cli *clientv3.Client, id clientv3.LeaseID,
) (*clientv3.LeaseKeepAliveResponse, error) {
	conn := leaseConn(cli)
	if conn == nil {
		return cli.KeepAliveOnce(ctx, id)
	}
	var resp pb.LeaseKeepAliveResponse
	// etcd's client would open a longer stream. It logs in for each stream if it has a user and a password: another Raft
	// entry, and another member that may hang. And while a stream fails with Unavailable, it opens the next without a
	// pause.
	err := conn.Invoke(ctx, leaseKeepAlive, &pb.LeaseKeepAliveRequest{ID: int64(id)}, &resp, grpc.WaitForReady(true))
	switch {
	case err != nil:
		return nil, clientv3.ContextError(ctx, err)
	case resp.TTL <= 0:
		return nil, rpctypes.ErrLeaseNotFound
	}
	return &clientv3.LeaseKeepAliveResponse{ResponseHeader: resp.Header, ID: clientv3.LeaseID(resp.ID), TTL: resp.TTL}, nil
}

// grantAs grants a lease with the given ID, and a TTL in seconds. etcd's client has no method for that: if the client's
// Lease is not etcd's own, etcd chooses the ID.
func grantAs(
	ctx context.Context, cli *clientv3.Client, id clientv3.LeaseID, ttl int64,
) (*clientv3.LeaseGrantResponse, error) {
	conn := leaseConn(cli)
	if conn == nil {
		return cli.Grant(ctx, ttl)
	}
	request := &pb.LeaseGrantRequest{ID: int64(id), TTL: ttl}
	// A copy with the same ID would be refused, because the lease exists, or would bring a lost lease back.
	resp, err := requests.Unrepeated(ctx, pb.NewLeaseClient(conn).LeaseGrant, request, grpc.WaitForReady(true))
	switch {
	case err != nil:
		return nil, clientv3.ContextError(ctx, err)
	case resp.Header.GetClusterId() == 0:
		return nil, retry.Final(ErrNotEtcd)
	}
	return &clientv3.LeaseGrantResponse{ResponseHeader: resp.Header, ID: clientv3.LeaseID(resp.ID), TTL: resp.TTL}, nil
}

// revokeRequest revokes a lease.
func revokeRequest(ctx context.Context, cli *clientv3.Client, id clientv3.LeaseID) error {
	conn := leaseConn(cli)
	if conn == nil {
		_, err := cli.Revoke(ctx, id)
		return err
	}
	request := &pb.LeaseRevokeRequest{ID: int64(id)}
	// While a cluster has no leader, etcd's client would repeat it 40 times a second.
	_, err := pb.NewLeaseClient(conn).LeaseRevoke(ctx, request, grpc.WaitForReady(true))
	return clientv3.ContextError(ctx, err)
}

// leaseConn returns the connection for requests about leases, or nil if the client's Lease was replaced: then use that.
// (The Lease of etcd's package namespace is no replacement: it changes no request about a lease.)
func leaseConn(cli *clientv3.Client) *grpc.ClientConn {
	t := reflect.TypeOf(cli.Lease)
	if t != leaseType && (t.Kind() != reflect.Pointer || t.Elem().PkgPath() != leaseType.Elem().PkgPath()+"/namespace") {
		return nil
	}
	return cli.ActiveConnection()
}

var leaseType = reflect.TypeOf(clientv3.NewLeaseFromLeaseClient(nil, nil, time.Second))

// stream is a watch of the session key on a stream of its own.
type stream struct {
	member uint64                          // it stays on this member; 0: etcd's client may move it
	next   func() ([]*mvccpb.Event, error) // of one response, in order; the last response may have both
	end    func()
}

// openStream opens a stream to the next member, and creates a watch on it. The watch ends when its stream does.
func openStream(ctx context.Context, conn *grpc.ClientConn, key string) (*stream, error) {
	ctx, end := context.WithCancel(clientv3.WithRequireLeader(ctx))
	late := time.AfterFunc(armTimeout, end)
	// When a stream breaks, etcd's client would move its watch to another member. Then two watches could be on the same
	// one, and nothing would say so.
	st, created, err := createWatch(ctx, conn, key)
	late.Stop()
	if err = cmp.Or(err, ctx.Err()); err != nil {
		end()
		return nil, fmt.Errorf("watch the session key: %w", err)
	}
	next := func() ([]*mvccpb.Event, error) {
		resp, err := st.Recv()
		switch {
		case err != nil:
			return nil, fmt.Errorf("watch the session key: %w", err)
		case resp.Canceled:
			return resp.Events, fmt.Errorf("the watch of the session key was canceled: %s", resp.CancelReason)
		}
		return resp.Events, nil
	}
	return &stream{member: created.Header.GetMemberId(), next: next, end: end}, nil
}

// createWatch asks for a watch, and waits until the member has created it, or refused it.
func createWatch(
	ctx context.Context, conn *grpc.ClientConn, key string,
) (pb.Watch_WatchClient, *pb.WatchResponse, error) {
	st, err := pb.NewWatchClient(conn).Watch(ctx, grpc.WaitForReady(true))
	if err != nil {
		return nil, nil, err
	}
	create := &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte(key)}}
	if err := st.Send(&pb.WatchRequest{RequestUnion: create}); err != nil {
		return nil, nil, err
	}
	resp, err := st.Recv()
	if err == nil && (!resp.Created || resp.Canceled) {
		err = fmt.Errorf("it was not created: %s", resp.CancelReason)
	}
	return st, resp, err
}

// armStream creates the watch with the client's Watcher.
func armStream(
	ctx context.Context, on *watching.Stream, cli *clientv3.Client, key string,
) (*stream, error) {
	// All tries use one stream: if etcd does not create a watch there, it is asked once, however many tries follow.
	armed, err := on.Arm(ctx, watching.Request{Client: cli, Open: ctx, Key: key, Within: armTimeout})
	if err != nil {
		return nil, err
	}
	next := func() (events []*mvccpb.Event, err error) {
		resp, err := armed.Next(ctx, nil)
		for _, ev := range resp.Events {
			events = append(events, (*mvccpb.Event)(ev)) //nolint:unconvert // another type before etcd 3.7
		}
		return events, err
	}
	return &stream{next: next, end: armed.Close}, nil
}

// streamConn returns the connection for streams of watches, or nil if the client's KV, Lease or Watcher was replaced:
// then use the Watcher, since the key may have another name there.
func streamConn(cli *clientv3.Client) *grpc.ClientConn {
	if reflect.TypeOf(cli.Watcher) != watcherType || !requests.IsEtcds(cli.KV) ||
		reflect.TypeOf(cli.Lease) != leaseType {
		return nil
	}
	return cli.ActiveConnection()
}

var watcherType = reflect.TypeOf(clientv3.NewWatchFromWatchClient(nil, nil))
