//go:build linux

package cmd

import (
	"context"
	"net"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// emulation answers as kine does, in the name of no cluster.
type emulation struct {
	pb.UnimplementedKVServer
	pb.UnimplementedMaintenanceServer
}

func (emulation) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 1}}, nil
}

func (emulation) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Header: &pb.ResponseHeader{}, Version: "3.6.14"}, nil
}

func TestCheckOfAServerThatKeepsNoLeases(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, served := grpc.NewServer(), make(chan struct{})
	pb.RegisterKVServer(server, emulation{})
	pb.RegisterMaintenanceServer(server, emulation{})
	go func() { // joined in the cleanup
		defer close(served)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() { server.Stop(); <-served })
	p := holdfast(t, []string{listener.Addr().String()}, "check", "--ttl=15s", "--samples=1").exits(1)
	if out := p.stdout.String(); !strings.Contains(out, "is not etcd") || !strings.Contains(out, "kine") {
		t.Errorf("it prints %q", out)
	}
}
