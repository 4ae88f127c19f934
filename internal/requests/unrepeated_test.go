package requests

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
)

// refusing answers the first Txn with a code, as a proxy does that has passed it on and has no reply yet.
type refusing struct {
	pb.UnimplementedKVServer
	code  codes.Code
	calls atomic.Int32
}

func (r *refusing) Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) {
	if r.calls.Add(1) == 1 {
		return nil, status.Error(r.code, "the proxy's")
	}
	return &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: true}, nil
}

// dial returns a client of a server that has only that KV.
func dial(t *testing.T, kv pb.KVServer) *clientv3.Client {
	t.Helper()
	listener, server := bufconn.Listen(1<<16), grpc.NewServer()
	pb.RegisterKVServer(server, kv)
	served := make(chan struct{})
	go func() { // joined in the cleanup
		defer close(served)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() { server.Stop(); <-served })
	cli, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"passthrough:///fake"}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// etcd's client repeats a write after Canceled and DeadlineExceeded, unless its context has ended. The Sender's does
// not, and the first reply is what the caller gets. A client whose KV was replaced is used as it is.
func TestTxnThatAProxyRefusesIsNotRepeatedByTheClient(t *testing.T) {
	replaced := func(cli *clientv3.Client) { cli.KV = namespace.NewKV(cli.KV, "a/") }
	for name, c := range map[string]struct {
		code  codes.Code
		setup func(*clientv3.Client)
		calls int32
	}{
		"canceled":                          {codes.Canceled, func(*clientv3.Client) {}, 1},
		"deadline exceeded":                 {codes.DeadlineExceeded, func(*clientv3.Client) {}, 1},
		"unavailable":                       {codes.Unavailable, func(*clientv3.Client) {}, 1},
		"canceled, behind a namespace":      {codes.Canceled, replaced, 2},
		"deadline exceeded, behind another": {codes.DeadlineExceeded, replaced, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				kv := &refusing{code: c.code}
				cli := dial(t, kv)
				c.setup(cli)
				_, err := NewSender(cli, backoff.Policy{Attempt: 1}).Txn(t.Context()).Then(clientv3.OpDelete("x")).Commit()
				synctest.Wait()
				if kv.calls.Load() != c.calls {
					t.Errorf("sent %d times", kv.calls.Load())
				}
				if got := status.Code(err); (c.calls == 1) != (got == c.code) {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}
