package versions_test

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/session"
)

const password = "secret"

// withAuth turns auth on. The user "locks" has the role of docs/client.md that takes locks.
func withAuth(t *testing.T, cli *clientv3.Client) {
	t.Helper()
	ctx := timeout(t)
	grant := func(key, end string, p clientv3.PermissionType) func() error {
		return func() error { _, err := cli.RoleGrantPermission(ctx, "locks", key, end, p); return err }
	}
	for _, do := range []func() error{
		func() error { _, err := cli.UserAdd(ctx, "root", password); return err },
		func() error { _, err := cli.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := cli.UserAdd(ctx, "locks", password); return err },
		func() error { _, err := cli.RoleAdd(ctx, "locks"); return err },
		func() error { _, err := cli.UserGrantRole(ctx, "locks", "locks"); return err },
		grant("holdfast/epoch", "", clientv3.PermissionType(clientv3.PermRead)),
		grant("holdfast/session/", "holdfast/session0", clientv3.PermissionType(clientv3.PermReadWrite)),
		grant("holdfast/lock/", "holdfast/lock0", clientv3.PermissionType(clientv3.PermReadWrite)),
		func() error { _, err := cli.AuthEnable(ctx); return err },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
}

func login(t *testing.T, endpoints []string, user string) *clientv3.Client {
	t.Helper()
	cfg := session.ClientConfig(endpoints...)
	cfg.Username, cfg.Password = user, password
	cli, err := session.NewClient(timeout(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// GHSA-xg4h-6gfc-h4m8, seen: a server that CheckServerRoles refuses shows a user who may read holdfast/epoch what
// others put behind it. One that it accepts refuses the watch.
func TestServerKeepsUsersToTheirRolesIfItsVersionSaysSo(t *testing.T) {
	endpoints := start(t)
	cli := connect(t, endpoints)
	status, err := cli.Status(timeout(t), endpoints[0])
	if err != nil {
		t.Fatal(err)
	}
	leaks := session.CheckServerRoles(status.Version) != nil
	withAuth(t, cli)
	root, user := login(t, endpoints, "root"), login(t, endpoints, "locks")

	ctx, cancel := context.WithCancel(timeout(t))
	defer cancel()
	if _, err := user.Get(ctx, "holdfast/epoch", clientv3.WithFromKey()); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("a read of all keys from the epoch on: %v", err)
	}
	watch := user.Watch(ctx, "holdfast/epoch", clientv3.WithFromKey(), clientv3.WithCreatedNotify())
	created := <-watch
	if err := created.Err(); (err == nil) != leaks {
		t.Fatalf("etcd %s, which leaks: %v; a watch of all keys from the epoch on: %v", status.Version, leaks, err)
	}
	if !leaks {
		return
	}
	if _, err := root.Put(ctx, "zzz/secret", "x"); err != nil {
		t.Fatal(err)
	}
	if resp := <-watch; len(resp.Events) != 1 || string(resp.Events[0].Kv.Key) != "zzz/secret" {
		t.Errorf("etcd %s sent %v to a user who may not read it", status.Version, resp)
	}
}
