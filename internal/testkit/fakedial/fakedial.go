// Package fakedial connects clients to an etcdfake as to an etcd, for tests of what etcd's client does with its
// connections.
package fakedial

import (
	"context"
	"fmt"
	"net"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/holdfast-go/holdfast/etcdfake"
)

// Dial returns a client with an endpoint, and a real connection in memory, for each of the members. Faults are those of
// the link. It ends with the test.
func Dial(t *testing.T, link *etcdfake.Link, members []*etcdfake.Member) *clientv3.Client {
	t.Helper()
	cfg := clientv3.Config{Logger: zap.NewNop()}
	listeners := make(map[string]*bufconn.Listener)
	for i, m := range members {
		listener, server := bufconn.Listen(1<<16), grpc.NewServer()
		link.ServeMember(server, m)
		served := make(chan struct{})
		go func() { // joined in the cleanup
			defer close(served)
			_ = server.Serve(listener)
		}()
		t.Cleanup(func() {
			server.Stop()
			<-served
		})
		addr := fmt.Sprintf("member%d:2379", i)
		listeners[addr] = listener
		cfg.Endpoints = append(cfg.Endpoints, "http://"+addr)
	}
	cfg.DialOptions = []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return listeners[addr].DialContext(ctx)
		}),
	}
	cli, err := clientv3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}
