// Package grpcproxy runs etcd's grpc-proxy in a test.
package grpcproxy

import (
	"context"
	"net"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// Start serves what "etcd grpc-proxy start" does, over a client of a cluster, until the test ends.
func Start(t *testing.T, cli *clientv3.Client) (endpoint string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(cli.Ctx())
	kv, _ := grpcproxy.NewKvProxy(cli)
	watches, watchesEnded := grpcproxy.NewWatchProxy(ctx, zap.NewNop(), cli)
	leases, leasesEnded := grpcproxy.NewLeaseProxy(ctx, cli)
	cluster, _ := grpcproxy.NewClusterProxy(zap.NewNop(), cli, "", "")
	server, served := grpc.NewServer(), make(chan struct{})
	pb.RegisterKVServer(server, kv)
	pb.RegisterWatchServer(server, watches)
	pb.RegisterLeaseServer(server, leases)
	pb.RegisterClusterServer(server, cluster)
	pb.RegisterMaintenanceServer(server, grpcproxy.NewMaintenanceProxy(cli))
	pb.RegisterAuthServer(server, grpcproxy.NewAuthProxy(cli))
	go func() { // joined in the cleanup
		defer close(served)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		cancel()
		<-served
		<-watchesEnded
		<-leasesEnded
	})
	return listener.Addr().String()
}
