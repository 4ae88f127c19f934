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
		for l, err := range r.Watch(deadline(t)) {
			if !errors.Is(err, rpctypes.ErrPermissionDenied) {
				t.Errorf("%s.Watch: %v, %v", what, l, err)
			}
		}
	}
}

// The role observers reads the claims with the entries, so no leader is named while one is ahead. A role for a prefix
// alone names it a lock delay early.
func TestRolesOfObserversAndClaims(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	admin, ctx := srv.Client(t), deadline(t)
	var failed []error
	must := func(_ any, err error) { failed = append(failed, err) }
	grant := func(role, key string) {
		read := clientv3.PermissionType(clientv3.PermRead)
		must(admin.RoleGrantPermission(ctx, role, key, clientv3.GetPrefixRangeEnd(key), read))
	}
	must(admin.UserAdd(ctx, "root", "pw"))
	must(admin.UserGrantRole(ctx, "root", "root"))
	for user, keys := range map[string][]string{
		"observer": {"holdfast/epoch", "holdfast/election/"}, "prefix": {"holdfast/epoch", "/app/x/"},
		"both": {"holdfast/epoch", "/app/x/", "holdfast/claim//app/x/"},
	} {
		must(admin.UserAdd(ctx, user, "pw"))
		must(admin.RoleAdd(ctx, user))
		must(admin.UserGrantRole(ctx, user, user))
		for _, key := range keys {
			grant(user, key)
		}
	}
	places := []struct{ entries, claims string }{
		{"holdfast/election/x/@/", "holdfast/election/x/@claim/"}, {"/app/x/", "holdfast/claim//app/x/"},
	}
	for _, at := range places { // the first was lost, the second waits
		const first, second = "1-AAAAAAAAAAAAAAAA", "2-AAAAAAAAAAAAAAAA"
		must(admin.Txn(ctx).Then(clientv3.OpPut(at.claims+first, "")).Commit())
		must(admin.Txn(ctx).Then(clientv3.OpPut(at.entries+second, "leads"), clientv3.OpPut(at.claims+second, "")).Commit())
	}
	must(admin.AuthEnable(ctx))
	login := func(user string) *clientv3.Client {
		link := srv.Link(t)
		cli, err := clientv3.New(clientv3.Config{
			Endpoints: link.Endpoints(), DialOptions: link.DialOptions(), Username: user, Password: "pw", Logger: zap.NewNop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cli.Close() })
		return cli
	}
	root := login("root")
	if err := errors.Join(failed...); err != nil {
		t.Fatal(err)
	}
	if l, err := election.NewReaderAt(login("prefix"), "/app/x").Leader(deadline(t)); err != nil || l.Value != "leads" {
		t.Errorf("without the right to read claims: %+v, %v", l, err)
	}
	for i, r := range []*election.Reader{
		election.NewReader(login("observer"), "x"), election.NewReaderAt(login("both"), "/app/x"),
	} {
		if l, err := r.Leader(deadline(t)); !errors.Is(err, election.ErrNoLeader) {
			t.Errorf("behind a claim: %+v, %v", l, err)
		}
		led := false
		for l, err := range r.Watch(deadline(t)) {
			if err != nil {
				t.Fatal(err)
			}
			if led = l.Token > 0; led {
				break
			}
			if _, err := root.Delete(deadline(t), places[i].claims+"1-AAAAAAAAAAAAAAAA"); err != nil {
				t.Fatal(err)
			}
		}
		if !led {
			t.Error("it did not hear that the claim was cleared")
		}
	}
}
