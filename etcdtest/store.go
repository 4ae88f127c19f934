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

// helperTimeout limits each helper that asks the store. It ends tests that went wrong; no machine is that slow.
const helperTimeout = time.Minute

// do calls f with the client of the helpers, and fails the test with its error.
func (a *access) do(t testing.TB, what string, f func(context.Context, *clientv3.Client) error) {
	t.Helper()
	// Not t.Context, since helpers are also called in t.Cleanup.
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

// Revoke revokes a lease, which deletes its keys. It is no error if the lease does not exist.
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

// Compact compacts the store at the current revision, which it returns, after the Recorders have read everything.
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

// Keys returns the keys under prefix, oldest first: under a lock's entries, the first is the holder's.
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

// WaitForKeys waits until there are exactly n keys under prefix, and returns them, oldest first. It fails the test
// after a minute.
func (a *access) WaitForKeys(t testing.TB, prefix string, n int) (kvs []*mvccpb.KeyValue) {
	t.Helper()
	a.do(t, "wait for keys", func(ctx context.Context, cli *clientv3.Client) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		// The watch exists before the first read, so no change is missed.
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

// present returns the current revision by a linearizable read: it includes every write acknowledged before.
func present(ctx context.Context, cli *clientv3.Client) (revision int64, err error) {
	resp, err := cli.Get(ctx, "\x00", clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return resp.Header.Revision, nil
}
