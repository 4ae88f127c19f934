package election_test

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// Who may not read an election is told so, instead of observing it until the
// context ends without learning anything.
func TestObservingWhatMayNotBeReadEndsWithAnError(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	admin, ctx := srv.Client(t), deadline(t)
	for _, user := range []string{"root", "user"} {
		if _, err := admin.UserAdd(ctx, user, "pw"); err != nil {
			t.Fatal(err)
		}
	}
	_, err1 := admin.UserGrantRole(ctx, "root", "root")
	_, err2 := admin.RoleAdd(ctx, "epochs") // renewals are confirmed by a read of the epoch
	_, err3 := admin.RoleGrantPermission(ctx, "epochs", "holdfast/epoch", "", clientv3.PermissionType(clientv3.PermRead))
	_, err4 := admin.UserGrantRole(ctx, "user", "epochs")
	_, err5 := admin.AuthEnable(ctx)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
	link := srv.Link(t)
	cli, err := clientv3.New(clientv3.Config{
		Endpoints: link.Endpoints(), DialOptions: link.DialOptions(), Username: "user", Password: "pw", Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	el := election.New(open(t, cli, session.Options{}), "x")
	if _, err := el.Observer(deadline(t)); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("Observer: %v", err)
	}
	for l, err := range el.Observe(deadline(t)) {
		if !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("Observe: %v, %v", l, err)
		}
	}
}
