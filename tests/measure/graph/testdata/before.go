// Command service is a service that does not use holdfast yet.
package main

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.opentelemetry.io/otel"
)

var _ = otel.Version

func connect() (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{"localhost:2379"}, Context: context.Background()})
}

func main() {
	if cli, err := connect(); err == nil {
		_ = cli.Close()
	}
}
