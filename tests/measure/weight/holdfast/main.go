// Command holdfast is a minimal program with a lock of this module. docs/performance.md compares its size and build
// time with those of ../upstream.
package main

import (
	"context"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func main() {
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:2379"}})
	if err != nil {
		log.Fatal(err)
	}
	sess, err := session.New(context.Background(), cli, session.Options{})
	if err != nil {
		log.Fatal(err)
	}
	lk, err := locker.NewMutex(sess, "lock").Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	if err := lk.Unlock(context.Background()); err != nil {
		log.Fatal(err)
	}
}
