package etcdtest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// contenders counts the calls of Occupy: each has its own key.
var contenders atomic.Int64

// Occupy puts the entry of another client under prefix, such as "holdfast/lock/NAME/@/" or "holdfast/election/NAME/@/",
// or "NAME/" for a lock of etcd's own clients. The client holds the lock, or leads, if the queue was empty; otherwise
// it waits. The entry has no lease; release deletes it, once. Occupy fails the test if prefix does not end in "/".
func (a *access) Occupy(t testing.TB, prefix string) (release func()) {
	t.Helper()
	if !strings.HasSuffix(prefix, "/") {
		t.Fatalf("etcdtest: Occupy: prefix %q does not end in \"/\"", prefix)
	}
	key := fmt.Sprintf("%sanother-client-%d", prefix, contenders.Add(1))
	a.do(t, "occupy", func(ctx context.Context, cli *clientv3.Client) error {
		_, err := cli.Put(ctx, key, "")
		return err
	})
	return func() {
		t.Helper()
		a.do(t, "release", func(ctx context.Context, cli *clientv3.Client) error {
			_, err := cli.Delete(ctx, key)
			return err
		})
	}
}

// RevokeHolder revokes the lease of the oldest entry under prefix: the client that holds the lock, or leads, loses it
// now, with everything else on the lease. Prefix is as for Occupy, or the entry's key. It fails the test if there is no
// entry, or if it has no lease.
func (a *access) RevokeHolder(t testing.TB, prefix string) {
	t.Helper()
	entries := a.Keys(t, prefix)
	switch {
	case len(entries) == 0:
		t.Fatalf("etcdtest: RevokeHolder: there is no key under %q", prefix)
	case entries[0].Lease == 0:
		t.Fatalf("etcdtest: RevokeHolder: %q has no lease", entries[0].Key)
	}
	a.Revoke(t, clientv3.LeaseID(entries[0].Lease))
}
