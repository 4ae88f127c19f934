package holdfast_test

import (
	"context"
	"fmt"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// closeBooks is what the program in README.md does with its client.
func closeBooks(ctx context.Context, cli *clientv3.Client) error {
	sess, err := session.New(ctx, cli, session.Options{}) // one per process
	if err != nil {
		return err
	}
	defer sess.Close(ctx)

	mu := locker.NewMutex(sess, "billing/job-7")
	return mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error { // ctx ends when the lock is lost
		w := etcdfence.NewWriter(lk)
		_, err := w.Put(ctx, "billing/job-7/state", "done")
		return err // fencing.ErrStale: the lock is lost, and etcd refused the write
	})
}

func Example() {
	srv := etcdfake.New(etcdfake.Options{}) // your etcd
	defer srv.Close()
	cli := srv.Link().Client()

	ctx := context.Background()
	if err := closeBooks(ctx, cli); err != nil {
		log.Fatal(err)
	}
	resp, err := cli.Get(ctx, "billing/job-7/state")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("billing/job-7 is", string(resp.Kvs[0].Value))
	// Output: billing/job-7 is done
}
