// Package v3lock_test tests that locks of holdfast and of etcd's own lock service exclude each other, as
// docs/migrating.md says. It is a package of its own because that service leaves goroutines in its server, which is in
// this process.
package v3lock_test

import (
	"testing"

	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, // but for what keeps the leases of the service's sessions alive
		goleak.IgnoreAnyFunction("go.etcd.io/etcd/client/v3.(*lessor).sendKeepAliveLoop"),
		goleak.IgnoreAnyFunction("go.etcd.io/etcd/client/v3.(*lessor).deadlineLoop"),
		goleak.IgnoreAnyFunction("go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter.(*chanStream).RecvMsg"),
		goleak.IgnoreAnyFunction("go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc.(*LeaseServer).LeaseKeepAlive"))
}

var deadline = testkit.Deadline

func TestMutexAtAndV3lockExcludeEachOther(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	service := v3lockpb.NewLockClient(cli.ActiveConnection())
	grant, err := cli.Grant(deadline(t), 60)
	if err != nil {
		t.Fatal(err)
	}
	request := &v3lockpb.LockRequest{Name: []byte("/app/lock"), Lease: int64(grant.ID)}
	held, err := service.Lock(deadline(t), request)
	if err != nil {
		t.Fatal(err)
	}

	mu := locker.NewMutexAt(testkit.Open(t, srv.Client(t), session.Options{}), "/app/lock")
	acquired, ctx := make(chan error, 1), deadline(t)
	var lk *locker.Lock
	go func() { // received below
		var err error
		lk, err = mu.Lock(ctx)
		acquired <- err
	}()
	srv.WaitForKeys(t, "/app/lock/", 2) // it waits
	if _, err := service.Unlock(deadline(t), &v3lockpb.UnlockRequest{Key: held.Key}); err != nil {
		t.Fatal(err)
	}
	if err := <-acquired; err != nil {
		t.Fatal(err)
	}

	again := make(chan error, 1)
	go func() { // received below
		_, err := service.Lock(ctx, request)
		again <- err
	}()
	srv.WaitForKeys(t, "/app/lock/", 2) // the service waits
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Error(err)
	}
	if err := <-again; err != nil {
		t.Error(err)
	}
}
