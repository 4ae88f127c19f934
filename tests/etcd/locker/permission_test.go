package locker_test

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

// restricted starts etcd with authentication. It returns a client of root, and one of a user with permission to read
// holdfast/ and to write only holdfast/session/, /legacy/, and the claims of entries below /legacy/.
func restricted(t *testing.T) (root, user *clientv3.Client, link *etcdtest.Link) {
	t.Helper()
	srv := etcdtest.Start(t)
	link = srv.Link(t)
	login := func(name string) *clientv3.Client {
		cli, err := clientv3.New(clientv3.Config{
			Endpoints: link.Endpoints(), DialOptions: link.DialOptions(), Username: name, Password: "pw", Logger: zap.NewNop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cli.Close() })
		return cli
	}
	admin, ctx := srv.Client(t), deadline(t)
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(admin.UserAdd(ctx, "root", "pw"))
	must(admin.UserGrantRole(ctx, "root", "root"))
	must(admin.RoleAdd(ctx, "legacy"))
	must(admin.RoleGrantPermission(ctx, "legacy", "/legacy/", clientv3.GetPrefixRangeEnd("/legacy/"),
		clientv3.PermissionType(clientv3.PermReadWrite)))
	must(admin.RoleGrantPermission(ctx, "legacy", "holdfast/", clientv3.GetPrefixRangeEnd("holdfast/"),
		clientv3.PermissionType(clientv3.PermRead)))
	for _, prefix := range []string{"holdfast/session/", "holdfast/claim//legacy/"} {
		must(admin.RoleGrantPermission(ctx, "legacy", prefix, clientv3.GetPrefixRangeEnd(prefix),
			clientv3.PermissionType(clientv3.PermReadWrite)))
	}
	must(admin.UserAdd(ctx, "user", "pw"))
	must(admin.UserGrantRole(ctx, "user", "legacy"))
	must(admin.AuthEnable(ctx))
	return login("root"), login("user"), link
}

func TestPermissionDeniedIsReturnedWithoutRetries(t *testing.T) {
	t.Parallel()
	_, user, _ := restricted(t)
	sess := open(t, user, session.Options{})
	start := time.Now()
	_, err := locker.NewMutex(sess, "x").Lock(deadline(t))
	var ae *view.AcquireError
	if !errors.As(err, &ae) || !errors.Is(err, rpctypes.ErrPermissionDenied) || time.Since(start) > 30*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}

// A waiter without read permission could not notice that it has reached the front of the queue, so it returns an error.
// Removing its entry takes a read as well: that happens when the permission is back, or when the session ends.
func TestWaiterFailsWhenItsReadPermissionIsRevoked(t *testing.T) {
	t.Parallel()
	root, user, link := restricted(t)
	sess := open(t, user, session.Options{})
	if _, err := root.Put(deadline(t), "/legacy/lock/holder", ""); err != nil {
		t.Fatal(err)
	}
	done := lockLater(deadline(t), locker.NewMutexAt(sess, "/legacy/lock"))
	queued := func() int64 {
		resp, err := root.Get(deadline(t), "/legacy/lock/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return -1
		}
		return resp.Count
	}
	eventually(t, "the waiter is queued", func() bool { return queued() == 2 })
	end := clientv3.GetPrefixRangeEnd("/legacy/")
	if _, err := root.RoleRevokePermission(deadline(t), "legacy", "/legacy/", end); err != nil {
		t.Fatal(err)
	}
	if _, err := root.RoleGrantPermission(deadline(t), "legacy", "/legacy/", end,
		clientv3.PermissionType(clientv3.PermWrite)); err != nil {
		t.Fatal(err)
	}
	link.Cut() // breaks the watch too: etcd checks its permission only at creation
	link.Heal()
	if r := <-done; !errors.Is(r.err, rpctypes.ErrPermissionDenied) {
		t.Errorf("Lock: %v", r.err)
	}
	if n := queued(); n != 2 {
		t.Errorf("%d entries: it was removed without a read", n)
	}
	if _, err := root.RoleGrantPermission(deadline(t), "legacy", "/legacy/", end,
		clientv3.PermissionType(clientv3.PermReadWrite)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the waiter's entry is removed", func() bool { return queued() == 1 })
}

// The read that proves a renewal asks for what is held. If etcd refuses that, it proves the renewal all the same. The
// right to write stays: without it etcd 3.7 refuses to renew the lease.
func TestHolderKeepsItsLeaseWithoutTheRightToReadItsEntry(t *testing.T) {
	t.Parallel()
	root, user, link := restricted(t)
	sess := open(t, user, session.Options{TTL: 3 * time.Second})
	lk, err := locker.NewMutexAt(sess, "/legacy/lock").Lock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	await := func(rpc string, n int) {
		t.Helper()
		if err := link.Wait(deadline(t), rpc, link.Count()[rpc]+n); err != nil {
			t.Fatal(err)
		}
	}
	await("LeaseKeepAlive", 2) // by then the lock was polled
	end := clientv3.GetPrefixRangeEnd("/legacy/")
	if _, err := root.RoleRevokePermission(deadline(t), "legacy", "/legacy/", end); err != nil {
		t.Fatal(err)
	}
	if _, err := root.RoleGrantPermission(deadline(t), "legacy", "/legacy/", end,
		clientv3.PermissionType(clientv3.PermWrite)); err != nil {
		t.Fatal(err)
	}
	await("Range", 4) // reads of the session key alone: longer than the lease lives without a renewal
	if err := lk.Check(); errors.Is(err, holdfast.ErrLost) {
		t.Fatalf("the lock: %v; the session is %v", err, sess.State())
	}
	// On a busy machine a reply may have come late.
	eventually(t, "the session is connected, and the lock held", func() bool {
		return lk.Check() == nil && sess.State() == holdfast.Connected
	})
	if _, err := root.RoleGrantPermission(deadline(t), "legacy", "/legacy/", end,
		clientv3.PermissionType(clientv3.PermReadWrite)); err != nil {
		t.Fatal(err)
	}
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Error(err)
	}
}
