package etcdfake_test

import (
	"context"
	"net"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/holdfast-go/holdfast/etcdfake"
)

func TestServedClusterAnswersARealClientAndHasTheFaultsOfItsLink(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		listener, server := bufconn.Listen(1<<16), grpc.NewServer()
		link.Serve(server)
		served := make(chan struct{})
		go func() { // joined below
			defer close(served)
			_ = server.Serve(listener)
		}()
		cli, err := clientv3.New(clientv3.Config{
			Endpoints: []string{"passthrough:///fake"}, Logger: zap.NewNop(),
			DialOptions: []grpc.DialOption{
				grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
					return listener.DialContext(ctx)
				}),
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		cli.Watcher = link.Client().Watcher
		defer func() {
			_ = cli.Close()
			server.Stop()
			<-served
		}()

		lease, err := cli.Grant(t.Context(), 15)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cli.Put(t.Context(), "a", "1", clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
		link.LoseReply("LeaseKeepAlive", 1, codes.Unavailable)
		time.Sleep(time.Second)
		if _, err := cli.KeepAliveOnce(t.Context(), lease.ID); err != nil {
			t.Error(err)
		}
		if left := time.Until(srv.Expires(lease.ID)); left != 15*time.Second {
			t.Errorf("expires in %v", left)
		}
		resp, err := cli.Get(t.Context(), "a")
		if err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].Lease != int64(lease.ID) {
			t.Errorf("%v, %v", resp, err)
		}
		_, err = cli.Revoke(t.Context(), lease.ID)
		if err != nil || len(srv.Keys("")) != 0 || !srv.Expires(lease.ID).IsZero() {
			t.Errorf("after the revocation: keys %v; %v", srv.Keys(""), err)
		}
		if n := link.Count(); n["LeaseKeepAlive"] < 2 || n["Put"] != 1 || n["Range"] != 1 {
			t.Errorf("counted %v", n)
		}
	})
}
