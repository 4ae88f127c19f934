//go:build kubernetes

package kubelock_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/holdfast-go/holdfast/contrib/kubelock"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

type permission struct {
	key, end string
	kind     clientv3.PermissionType
}

// documentedRole reads the permissions of a role from docs/client.md.
func documentedRole(t *testing.T, role string) (permissions []permission) {
	t.Helper()
	text, err := os.ReadFile("../../docs/client.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^etcdctl role grant-permission (--prefix )?` + role + ` (read|readwrite) (\S+)$`)
	for _, m := range command.FindAllStringSubmatch(string(text), -1) {
		p := permission{key: m[3], kind: clientv3.PermissionType(clientv3.PermRead)}
		if m[2] == "readwrite" {
			p.kind = clientv3.PermissionType(clientv3.PermReadWrite)
		}
		if m[1] != "" {
			p.end = clientv3.GetPrefixRangeEnd(p.key)
		}
		permissions = append(permissions, p)
	}
	if len(permissions) == 0 {
		t.Fatalf("docs/client.md has no role %q", role)
	}
	return permissions
}

// leadOnce does what client-go's elector has a Lock do, from the first candidate to its release.
func leadOnce(ctx context.Context, cli *clientv3.Client, name string) error {
	lock, err := kubelock.New(cli, name, "me", kubelock.Options{})
	if err != nil {
		return err
	}
	if _, _, err := lock.Get(ctx); !apierrors.IsNotFound(err) {
		return err
	}
	record := resourcelock.LeaderElectionRecord{HolderIdentity: "me", LeaseDurationSeconds: 15}
	renewed, released := record, resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}
	renewed.LeaderTransitions++
	if err := lock.Create(ctx, record); err != nil {
		return err
	}
	return errors.Join(lock.Update(ctx, renewed), lock.Update(ctx, released))
}

// The role in docs/client.md suffices for a Lock, and no permission of it can be reduced.
func TestDocumentedRoleOfAnElectorIsMinimal(t *testing.T) {
	const role, user, password = "controllers", "operator", "secret"
	srv := etcdtest.Start(t)
	adm := srv.Client(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	grant := func(p permission) {
		t.Helper()
		_, err := adm.RoleGrantPermission(ctx, role, p.key, p.end, p.kind)
		must(err)
	}
	revoke := func(p permission) {
		t.Helper()
		_, err := adm.RoleRevokePermission(ctx, role, p.key, p.end)
		must(err)
	}
	login := func(name string) *clientv3.Client {
		t.Helper()
		cfg := session.ClientConfig(srv.Endpoints()...)
		cfg.Username, cfg.Password = name, password
		cli, err := session.NewClient(ctx, cfg)
		must(err)
		t.Cleanup(func() { _ = cli.Close() })
		return cli
	}
	permissions := documentedRole(t, role)
	for _, name := range []string{role, "root"} {
		_, err := adm.RoleAdd(ctx, name)
		must(err)
	}
	for _, p := range permissions {
		grant(p)
	}
	for name, of := range map[string]string{user: role, "root": "root"} {
		_, err := adm.UserAdd(ctx, name, password)
		must(err)
		_, err = adm.UserGrantRole(ctx, name, of)
		must(err)
	}
	_, err := adm.AuthEnable(ctx)
	must(err)
	adm = login("root")
	cli := login(user)

	must(leadOnce(ctx, cli, "shop/operator"))
	for _, p := range permissions {
		weaker := []clientv3.PermissionType{-1} // none
		if p.kind == clientv3.PermissionType(clientv3.PermReadWrite) {
			weaker = append(weaker, clientv3.PermissionType(clientv3.PermRead), clientv3.PermissionType(clientv3.PermWrite))
		}
		for _, kind := range weaker {
			revoke(p)
			reduced := permission{p.key, p.end, kind}
			if kind >= 0 {
				grant(reduced)
			}
			if err := leadOnce(ctx, cli, "shop/other"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
				t.Errorf("with permission on %s reduced to %v: %v", p.key, kind, err)
			}
			if kind >= 0 {
				revoke(reduced)
			}
			grant(p)
		}
	}
}
