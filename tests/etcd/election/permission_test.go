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

func TestReadersWithoutPermissionGetAnError(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	admin, ctx := srv.Client(t), deadline(t)
	for _, user := range []string{"root", "user"} {
		if _, err := admin.UserAdd(ctx, user, "pw"); err != nil {
			t.Fatal(err)
		}
	}
	_, err1 := admin.UserGrantRole(ctx, "root", "root")
	_, err2 := admin.RoleAdd(ctx, "sessions") // only what a session needs
	_, err3 := admin.RoleGrantPermission(ctx, "sessions", "holdfast/epoch", "", clientv3.PermissionType(clientv3.PermRead))
	_, err4 := admin.RoleGrantPermission(ctx, "sessions", "holdfast/session/",
		clientv3.GetPrefixRangeEnd("holdfast/session/"), clientv3.PermissionType(clientv3.PermReadWrite))
	_, err5 := admin.UserGrantRole(ctx, "user", "sessions")
	_, err6 := admin.AuthEnable(ctx)
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
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
	for what, r := range map[string]reader{
		"Election": newElection(t, cli, session.Options{}), "Reader": election.NewReader(cli, "x"),
	} {
		if _, err := r.Leader(deadline(t)); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("%s.Leader: %v", what, err)
		}
		if _, err := r.Observer(deadline(t)); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("%s.Observer: %v", what, err)
		}
		for l, err := range r.Observe(deadline(t)) {
			if !errors.Is(err, rpctypes.ErrPermissionDenied) {
				t.Errorf("%s.Observe: %v, %v", what, l, err)
			}
		}
	}
}
