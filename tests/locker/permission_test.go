package locker_test

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// restricted starts an etcd with auth on and returns a client of root's, and
// one of a user who may read the namespace and write below /legacy/ only.
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
	must(admin.RoleGrantPermission(ctx, "legacy", "/legacy/", clientv3.GetPrefixRangeEnd("/legacy/"), clientv3.PermissionType(clientv3.PermReadWrite)))
	must(admin.RoleGrantPermission(ctx, "legacy", "holdfast/", clientv3.GetPrefixRangeEnd("holdfast/"), clientv3.PermissionType(clientv3.PermRead)))
	must(admin.RoleGrantPermission(ctx, "legacy", "holdfast/session/", clientv3.GetPrefixRangeEnd("holdfast/session/"), clientv3.PermissionType(clientv3.PermReadWrite)))
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
	var ae *locker.AcquireError
	if !errors.As(err, &ae) || !errors.Is(err, rpctypes.ErrPermissionDenied) || time.Since(start) > 10*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}

// A waiter that may no longer look is told, instead of standing in the queue,
// and one day at its front, without ever knowing. To leave it has to look as well:
// its entry goes when it may, or with the session.
func TestWaiterFailsWhenItsReadPermissionIsRevoked(t *testing.T) {
	t.Parallel()
	root, user, link := restricted(t)
	sess := open(t, user, session.Options{})
	if _, err := root.Put(deadline(t), "/legacy/lock/holder", ""); err != nil {
		t.Fatal(err)
	}
	done := lockLater(deadline(t), locker.NewMutexAt(sess, "/legacy/lock"))
	standing := func() int64 {
		resp, err := root.Get(deadline(t), "/legacy/lock/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return -1
		}
		return resp.Count
	}
	eventually(t, "it is queued", func() bool { return standing() == 2 })
	end := clientv3.GetPrefixRangeEnd("/legacy/")
	if _, err := root.RoleRevokePermission(deadline(t), "legacy", "/legacy/", end); err != nil {
		t.Fatal(err)
	}
	if _, err := root.RoleGrantPermission(deadline(t), "legacy", "/legacy/", end, clientv3.PermissionType(clientv3.PermWrite)); err != nil {
		t.Fatal(err)
	}
	link.Cut() // and with the connection the watch, which was permitted when it was made
	link.Heal()
	if r := <-done; !errors.Is(r.err, rpctypes.ErrPermissionDenied) {
		t.Errorf("Lock: %v", r.err)
	}
	if n := standing(); n != 2 {
		t.Errorf("%d entries: it left without looking", n)
	}
	if _, err := root.RoleGrantPermission(deadline(t), "legacy", "/legacy/", end, clientv3.PermissionType(clientv3.PermReadWrite)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its entry is removed", func() bool { return standing() == 1 })
}
