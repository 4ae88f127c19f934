package retry

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// ErrNotConnected is etcderr.ErrNotConnected.
var ErrNotConnected = errors.New("no connection to etcd")

// askConnection bounds the question to a connection. The answer is immediate, unless the connection has just come up:
// then a member is asked for its status.
const askConnection = 100 * time.Millisecond

// maintenanceStatus is etcd's Status RPC. Its constant in etcdserverpb is new in 3.7.
const maintenanceStatus = "/etcdserverpb.Maintenance/Status"

// WithConnection adds to err, the end of a context, why conn is not connected, or that it is still connecting. conn is
// the ActiveConnection of a client. WithConnection returns other errors unchanged, and err if conn is nil or connected.
//
// etcd's client waits for a connection and returns only the context's error. gRPC gives the reason only to calls that
// do not wait, so WithConnection makes such a call, which is not sent.
func WithConnection(conn *grpc.ClientConn, err error) error {
	if conn == nil || errors.Is(err, ErrNotConnected) ||
		!errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	switch conn.GetState() {
	case connectivity.TransientFailure:
	case connectivity.Connecting: // one endpoint at least has neither accepted nor refused
		return fmt.Errorf("%w: %w: still connecting, no answer so far", err, ErrNotConnected)
	default:
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), askConnection)
	defer cancel()
	why := conn.Invoke(ctx, maintenanceStatus, &pb.StatusRequest{}, &pb.StatusResponse{}, grpc.WaitForReady(false))
	if status.Code(why) != codes.Unavailable {
		return err // it is connected by now, or cannot say
	}
	// Only the text: the error is about another request, and must not be classified.
	return fmt.Errorf("%w: %w: %s", err, ErrNotConnected, status.Convert(why).Message())
}
