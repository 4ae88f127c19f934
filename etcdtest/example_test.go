package etcdtest_test

import (
	"context"
	"fmt"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/etcdtest"
)

// A program that takes "no reply" for "not done" does its work twice.
func Example() {
	srv, err := etcdtest.New(etcdtest.Options{}) // in a test: etcdtest.Start(t)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	link, err := srv.NewLink() // in a test: srv.Link(t)
	if err != nil {
		log.Fatal(err)
	}
	defer link.Close()
	cli, ctx := link.Client(), context.Background()

	enqueue := func() error {
		_, err := cli.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision("job"), "=", 0)).
			Then(clientv3.OpPut("job", "")).
			Commit()
		return err
	}
	link.LoseReply("Txn", 1, codes.Unavailable)
	fmt.Println("enqueue:", status.Code(enqueue()))

	jobs, err := cli.Get(ctx, "job")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("jobs:", jobs.Count)
	fmt.Println("enqueue:", status.Code(enqueue()))
	fmt.Println("transactions:", link.Count()["Txn"])
	// Output:
	// enqueue: Unavailable
	// jobs: 1
	// enqueue: OK
	// transactions: 2
}

// A transaction commits when its packets finally arrive, even if its client has given up.
func ExampleLink_Hold() {
	srv, err := etcdtest.New(etcdtest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	link, err := srv.NewLink()
	if err != nil {
		log.Fatal(err)
	}
	defer link.Close()

	ctx, cancel := context.WithCancel(context.Background())
	held := link.Hold("Put")
	go func() {
		<-held.Arrived()
		cancel() // the caller gives up while its request is in flight
	}()
	_, err = link.Client().Put(ctx, "lock", "mine")
	fmt.Println("put:", err)

	held.Deliver()
	<-held.Delivered()
	resp, err := link.Client().Get(context.Background(), "lock")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("lock: %s\n", resp.Kvs[0].Value)
	// Output:
	// put: context canceled
	// lock: mine
}
