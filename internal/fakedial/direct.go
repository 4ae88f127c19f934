package fakedial

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/etcdfake"
)

// Direct returns a client with an endpoint for each member and no connection: what would go over that goes to the
// link. Its KV, Lease and Cluster are those of the link's client, whose retries are drawn from nothing. It is far
// cheaper than one of Dial. Close it.
func Direct(link *etcdfake.Link, members []*etcdfake.Member) *clientv3.Client {
	cfg := clientv3.Config{Logger: zap.NewNop(), DialOptions: link.DialOptions(), Context: context.Background()}
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
