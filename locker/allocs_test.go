package locker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// ownAllocations bounds what Lock and Unlock of a free lock allocate beyond the two
// Txns that they send: 61 as this is written. 26 of them are made by internal/attempt,
// which can send a request again, 14 for contexts that end with the lease, 7 for a span
// that is not collected, 5 for the entry's value.
const ownAllocations = 66

func TestLockAndUnlockAllocateLittleBeyondTheirRPCs(t *testing.T) {
	srv := etcdfake.New(nil)
	defer srv.Close()
	cli := srv.Client()
	sess := open(t, cli, session.Options{TTL: 600 * time.Second})
	mu := locker.NewMutex(sess, "x")
	ctx := deadline(t)

	whole := testing.AllocsPerRun(200, func() {
		lk, err := mu.Lock(ctx)
		if err == nil {
			err = lk.Unlock(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	})

	bare := testing.AllocsPerRun(200, func() {
		if err := bareTxns(ctx, cli, "bare", sess.Lease()); err != nil {
			t.Fatal(err)
		}
	})
	if own := whole - bare; bare == 0 || own > ownAllocations {
		t.Errorf("Lock and Unlock allocate %v times, %v of them beyond their RPCs; want at most %v", whole, own, ownAllocations)
	} else {
		t.Logf("%v allocations, %v of them beyond the RPCs", whole, own)
	}
}

// bareTxns sends the two Txns that Lock and Unlock of a free lock are, made by
// hand.
func bareTxns(ctx context.Context, cli *clientv3.Client, name string, lease clientv3.LeaseID) error {
	prefix := name + "/@/"
	key := prefix + "5eed0001-ABCDEFGHIJKLMNOP"
	put, err := cli.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0), clientv3.Compare(clientv3.ModRevision(name+"/session"), "=", 0)).
		Then(clientv3.OpPut(key, "{}", clientv3.WithLease(lease)), clientv3.OpGet(name+"/epoch"),
			clientv3.OpGet(prefix, append(clientv3.WithLastCreate(), clientv3.WithLimit(2), clientv3.WithKeysOnly())...)).
		Commit()
	if err != nil {
		return err
	}
	removed, err := cli.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", put.Header.Revision)).
		Then(clientv3.OpDelete(key)).
		Commit()
	if err == nil && !(put.Succeeded && removed.Succeeded) {
		err = errors.New("refused")
	}
	return err
}
