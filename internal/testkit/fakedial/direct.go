package fakedial

import (
	"context"
	"fmt"
	"net"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/etcdfake"
)

// Direct returns a client with an endpoint for each member and no connection: what would go over that goes to the
// link. Its KV, Lease and Cluster are those of the link's client, whose retries are drawn from nothing. It is far
// cheaper than one of Dial. Close it.
func Direct(link *etcdfake.Link, members []*etcdfake.Member) *clientv3.Client {
	cfg := clientv3.Config{Logger: zap.NewNop(), DialOptions: link.DialOptions(), Context: context.Background()}
	cfg.DialOptions = append(cfg.DialOptions, grpc.WithContextDialer(untilCanceled))
	for i := range members {
		cfg.Endpoints = append(cfg.Endpoints, fmt.Sprintf("http://member%d:2379", i))
	}
	cli, err := clientv3.New(cfg)
	if err != nil {
		panic(err) // it connects to nothing
	}
	own := link.Client()
	cli.KV, cli.Lease, cli.Cluster, cli.Maintenance = own.KV, own.Lease, own.Cluster, nil
	return cli
}

// untilCanceled connects to nothing. The client connects at once: it would ask the machine's DNS for the name of a
// member, which nothing in a bubble may do.
func untilCanceled(ctx context.Context, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
