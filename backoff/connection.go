package backoff

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

// ErrNotConnected says that etcd's client had no connection when a context
// ended; why not is said beside it: a certificate that is not trusted, a port
// where nobody listens. It says nothing about the request: the connection may
// have ended after that was sent. See [WithConnection].
var ErrNotConnected = errors.New("no connection to etcd")

// askConnection bounds the question to a connection. It answers at once, unless
// it has come up just now: then a member is asked for its status.
const askConnection = 100 * time.Millisecond

// maintenanceStatus is etcd's Status RPC. Its constant in etcdserverpb is new in 3.7.
const maintenanceStatus = "/etcdserverpb.Maintenance/Status"

// WithConnection adds to err why conn, a client's ActiveConnection, is not
// connected, if err comes of a context's end and conn has failed to connect.
// Otherwise err is returned as it is; conn may be nil.
//
// etcd's client waits for a connection for as long as the context of a call
// lives, and then returns the context's error alone. What happened meanwhile,
// a wrong CA or a wrong port, gRPC tells only to calls that do not wait, so one
// is made. It is not sent as long as there is no connection.
func WithConnection(conn *grpc.ClientConn, err error) error {
	if conn == nil || errors.Is(err, ErrNotConnected) ||
		!errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) ||
		conn.GetState() != connectivity.TransientFailure {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), askConnection)
	defer cancel()
	why := conn.Invoke(ctx, maintenanceStatus, &pb.StatusRequest{}, &pb.StatusResponse{}, grpc.WaitForReady(false))
	if status.Code(why) != codes.Unavailable {
		return err // it is connected by now, or cannot say
	}
	// Its text only: it is about another request, and must not be classified.
	return fmt.Errorf("%w: %w: %s", err, ErrNotConnected, status.Convert(why).Message())
}
