package etcderr_test

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-go/holdfast/etcderr"
)

// The class says whether a failed write may have been carried out.
func ExampleClassify() {
	for _, err := range []error{
		rpctypes.ErrTooManyRequests,
		rpctypes.ErrTimeout,
		fmt.Errorf("put: %w", context.DeadlineExceeded),
		rpctypes.ErrLeaseNotFound,
		rpctypes.ErrPermissionDenied,
		rpctypes.ErrEmptyKey,
		rpctypes.ErrNoSpace,
	} {
		fmt.Printf("%-12v %v\n", etcderr.Classify(err), err)
	}
	// Output:
	// transient    etcdserver: too many requests
	// unknown      etcdserver: request timed out
	// unknown      put: context deadline exceeded
	// lease gone   etcdserver: requested lease not found
	// unauthorized etcdserver: permission denied
	// permanent    etcdserver: key is not provided
	// unknown      etcdserver: mvcc: database space exceeded
}
