package backoff_test

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-go/holdfast/backoff"
)

// A read is retried until it succeeds or its context ends.
func ExampleRetry() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	answers := []error{rpctypes.ErrTooManyRequests, rpctypes.ErrLeaderChanged, nil}
	policy := backoff.Policy{Initial: time.Millisecond}
	err := backoff.Retry(ctx, policy, func(ctx context.Context) error {
		answer := answers[0] // in a program: _, err := cli.Get(ctx, key)
		answers = answers[1:]
		fmt.Println("asked:", answer)
		return answer
	})
	fmt.Println("result:", err)
	// Output:
	// asked: etcdserver: too many requests
	// asked: etcdserver: leader changed
	// asked: <nil>
	// result: <nil>
}
