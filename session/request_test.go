package session_test

import (
	"context"
	"errors"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/session"
)

// emulation grants leases as kine does: the ID of each is its TTL, whatever was asked for, and its replies name no
// cluster.
type emulation struct{ pb.UnimplementedLeaseServer }

func (*emulation) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	return &pb.LeaseGrantResponse{Header: &pb.ResponseHeader{}, ID: r.TTL, TTL: r.TTL}, nil
}

func TestNewRefusesAServerThatKeepsNoLeases(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cfg := session.ClientConfig("passthrough:///fake")
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(serve(t, func(s *grpc.Server) { pb.RegisterLeaseServer(s, &emulation{}) })))
		cli, err := session.NewClient(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cli.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := session.New(ctx, cli, nil); !errors.Is(err, session.ErrNotEtcd) || ctx.Err() != nil {
			t.Errorf("%v after %v", err, ctx.Err())
		}
	})
}
