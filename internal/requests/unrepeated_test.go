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

// refusing answers the first request with a code, as a proxy does that has passed it on and has no reply yet.
type refusing struct {
	pb.UnimplementedKVServer
	code  codes.Code
	calls atomic.Int32
	key   atomic.Pointer[string] // of the latest
}

func (r *refusing) Txn(_ context.Context, txn *pb.TxnRequest) (*pb.TxnResponse, error) {
	key := string(txn.Success[0].GetRequestDeleteRange().GetKey())
	r.key.Store(&key)
	return &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: true}, r.first()
}

func (r *refusing) Range(_ context.Context, read *pb.RangeRequest) (*pb.RangeResponse, error) {
	key := string(read.Key)
	r.key.Store(&key)
	return &pb.RangeResponse{Header: &pb.ResponseHeader{}}, r.first()
}

func (r *refusing) first() error {
	if r.calls.Add(1) == 1 {
		return status.Error(r.code, "the proxy's")
	}
	return nil
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

// etcd's client repeats a write after Canceled and DeadlineExceeded, and a read after Unavailable, too, unless its
// context has ended. The Sender's does not, and the first reply is what the caller gets. A client whose KV was replaced
// is used as it is.
func TestRequestThatAProxyRefusesIsNotRepeatedByTheClient(t *testing.T) {
	txn := func(s *Sender, ctx context.Context) error {
		_, err := s.Txn(ctx).Then(clientv3.OpDelete("x")).Commit()
		return err
	}
	read := func(s *Sender, ctx context.Context) error {
		_, err := s.Read(ctx, clientv3.OpGet("x"))
		return err
	}
	own := func(*clientv3.Client) {}
	below := func(cli *clientv3.Client) { cli.KV = namespace.NewKV(namespace.NewKV(cli.KV, "a/"), "b/") }
	replaced := func(cli *clientv3.Client) { cli.KV = struct{ clientv3.KV }{cli.KV} }
	for name, c := range map[string]struct {
		code  codes.Code
		setup func(*clientv3.Client)
		send  func(s *Sender, ctx context.Context) error
		calls int32
	}{
		"Txn, canceled":                       {codes.Canceled, own, txn, 1},
		"Txn, deadline exceeded":              {codes.DeadlineExceeded, own, txn, 1},
		"Txn, unavailable":                    {codes.Unavailable, own, txn, 1},
		"Txn, canceled, in a namespace":       {codes.Canceled, below, txn, 1},
		"Txn, canceled, by a replaced KV":     {codes.Canceled, replaced, txn, 2},
		"Txn, deadline exceeded, by that":     {codes.DeadlineExceeded, replaced, txn, 2},
		"read, canceled":                      {codes.Canceled, own, read, 1},
		"read, deadline exceeded":             {codes.DeadlineExceeded, own, read, 1},
		"read, unavailable":                   {codes.Unavailable, own, read, 1},
		"read, refused":                       {codes.PermissionDenied, own, read, 1},
		"read, unavailable, in a namespace":   {codes.Unavailable, below, read, 1},
		"read, unavailable, by a replaced KV": {codes.Unavailable, replaced, read, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				kv := &refusing{code: c.code}
				cli := dial(t, kv)
				c.setup(cli)
				err := c.send(NewSender(cli, backoff.Policy{}), t.Context())
				synctest.Wait()
				sentTo := kv.key.Load()
				if kv.calls.Load() != c.calls {
					t.Errorf("sent %d times", kv.calls.Load())
				}
				inside := cli.KV // what etcd's package namespace makes of the key
				if _, err := inside.Get(t.Context(), "x"); err != nil {
					t.Error(err)
				}
				if want := *kv.key.Load(); want != *sentTo {
					t.Errorf("sent to %s, want %s", *sentTo, want)
				}
				if got := status.Code(err); (c.calls == 1) != (got == c.code) {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}
