package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// helperTimeout bounds each helper that asks the store. It is for tests that went wrong, not for slow machines.
const helperTimeout = time.Minute

// do calls f with a client of a's own, and fails the test with f's error.
func (a *access) do(t testing.TB, what string, f func(context.Context, *clientv3.Client) error) {
	t.Helper()
	// Not t.Context: helpers are called in Cleanup as well.
	ctx, cancel := context.WithTimeout(context.Background(), helperTimeout)
	defer cancel()
	cli, err := a.client()
	if err == nil {
		err = f(ctx, cli)
	}
	if err != nil {
		t.Fatalf("etcdtest: %s: %v", what, err)
	}
}

// Revoke ends a lease now and so deletes the keys attached to it, as an administrator or its expiry would. A lease that
// does not exist any more is fine.
func (a *access) Revoke(t testing.TB, lease clientv3.LeaseID) {
	t.Helper()
	a.do(t, "revoke", func(ctx context.Context, cli *clientv3.Client) error {
		_, err := cli.Revoke(ctx, lease)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return nil
		}
		return err
	})
}

// Compact drops the history up to the present revision, and returns that: watches that are to start there or earlier
// are refused, and so is a read of an earlier revision. It waits for the Recorders first.
func (a *access) Compact(t testing.TB) (revision int64) {
	t.Helper()
	a.do(t, "compact", func(ctx context.Context, cli *clientv3.Client) (err error) {
		if revision, err = present(ctx, cli); err != nil {
			return err
		}
		for _, r := range a.running() {
			if err := r.wait(ctx, revision); err != nil {
				return err
			}
		}
		_, err = cli.Compact(ctx, revision, clientv3.WithCompactPhysical())
		if errors.Is(err, rpctypes.ErrCompacted) {
			return nil
		}
		return err
	})
	return revision
}

// Keys returns what stands under prefix, in the order in which it was created.
func (a *access) Keys(t testing.TB, prefix string) (kvs []*mvccpb.KeyValue) {
	t.Helper()
	a.do(t, "keys", func(ctx context.Context, cli *clientv3.Client) error {
		resp, err := cli.Get(ctx, prefix, byCreation...)
		if err == nil {
			kvs = resp.Kvs
		}
		return err
	})
	return kvs
}

var byCreation = []clientv3.OpOption{
	clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend),
}

// WaitForKeys waits until exactly n keys stand under prefix, and returns them in the order in which they were created.
// It fails the test if that does not happen within a minute.
func (a *access) WaitForKeys(t testing.TB, prefix string, n int) (kvs []*mvccpb.KeyValue) {
	t.Helper()
	a.do(t, "wait for keys", func(ctx context.Context, cli *clientv3.Client) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		// The watch is armed before the first look, so that each change after a look wakes us for another.
		changes := cli.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
		for change := range changes {
			if err := change.Err(); err != nil {
				return err
			}
			resp, err := cli.Get(ctx, prefix, byCreation...)
			if err != nil {
				return err
			}
			if kvs = resp.Kvs; len(kvs) == n {
				return nil
			}
		}
		return fmt.Errorf("%d keys under %q, want %d: %w", len(kvs), prefix, n, ctx.Err())
	})
	return kvs
}

// present returns the revision of the store, read from a quorum: everything that was acknowledged before is in it.
func present(ctx context.Context, cli *clientv3.Client) (revision int64, err error) {
	resp, err := cli.Get(ctx, "\x00", clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return resp.Header.Revision, nil
}
