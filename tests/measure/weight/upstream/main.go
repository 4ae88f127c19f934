// Command upstream is a minimal program with a lock of etcd's concurrency package. docs/performance.md compares
// ../holdfast with it.
package main

import (
	"context"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func main() {
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:2379"}})
	if err != nil {
		log.Fatal(err)
	}
	sess, err := concurrency.NewSession(cli)
	if err != nil {
		log.Fatal(err)
	}
	mu := concurrency.NewMutex(sess, "lock")
	if err := mu.Lock(context.Background()); err != nil {
		log.Fatal(err)
	}
	if err := mu.Unlock(context.Background()); err != nil {
		log.Fatal(err)
	}
}
