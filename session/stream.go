package session

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/watching"
)

// stream is a watch of the session key on a stream of its own.
type stream struct {
	member uint64                          // that it stays on; 0 if etcd's client may move it
	next   func() ([]*mvccpb.Event, error) // of one response, in order; both if it is the last one
	end    func()
}

// openStream opens a stream to the next member, and creates a watch on it.
//
// It is not one of etcd's client, which moves a watch silently to another member when its stream breaks: two watches
// that were on different members could be on one, and nothing would say so. This one ends when its stream does.
func openStream(ctx context.Context, conn *grpc.ClientConn, key string, within time.Duration) (*stream, error) {
	ctx, end := context.WithCancel(clientv3.WithRequireLeader(ctx))
	late := time.AfterFunc(within, end)
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

// createWatch returns when the member has created the watch, or has refused it.
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

// armStream creates the watch with the client's Watcher, always on one stream: there a watch that etcd does not create
// is asked for once, however often this is tried.
func armStream(
	ctx context.Context, on *watching.Stream, cli *clientv3.Client, key string, within time.Duration,
) (*stream, error) {
	armed, err := on.Arm(ctx, watching.Request{Client: cli, Open: ctx, Key: key, Within: within})
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

// streamConn returns the connection for streams of watches. It is nil if one of the client's KV, Lease or Watcher was
// replaced, since that may be by one for which the key has another name. Then the Watcher is used.
func streamConn(cli *clientv3.Client) *grpc.ClientConn {
	if reflect.TypeOf(cli.Watcher) != watcherType || !requests.IsEtcds(cli.KV) ||
		reflect.TypeOf(cli.Lease) != leaseType {
		return nil
	}
	return cli.ActiveConnection()
}

var watcherType = reflect.TypeOf(clientv3.NewWatchFromWatchClient(nil, nil))
