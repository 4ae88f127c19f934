//go:build linux

package cmd

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/shard"
)

// grantLine is a line of docs/client.md that gives a role a permission.
var grantLine = regexp.MustCompile(`(?m)^etcdctl role grant-permission (--prefix )?(\S+) (read|write|readwrite) (\S+)$`)

// documentedRoles makes the roles of docs/client.md, each with a user of its name, and enables auth.
func documentedRoles(t *testing.T, cli *clientv3.Client, password string) (roles []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "client.md"))
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]clientv3.PermissionType{
		"read": clientv3.PermissionType(clientv3.PermRead), "write": clientv3.PermissionType(clientv3.PermWrite),
		"readwrite": clientv3.PermissionType(clientv3.PermReadWrite),
	}
	for _, grant := range grantLine.FindAllStringSubmatch(string(text), -1) {
		role, key, end := grant[2], grant[4], ""
		if grant[1] != "" {
			end = clientv3.GetPrefixRangeEnd(key)
		}
		if !slices.Contains(roles, role) {
			roles = append(roles, role)
			addUser(t, cli, role, password, clientv3.PermRead)
		}
		if _, err := cli.RoleGrantPermission(deadline(t), role, key, end, kinds[grant[3]]); err != nil {
			t.Fatal(err)
		}
	}
	if len(roles) < 18 {
		t.Fatalf("docs/client.md has the roles %q", roles)
	}
	enableAuth(t, cli, password)
	return roles
}

// A check finds out for each role of docs/client.md what it is for, and nothing that the role does not have.
func TestCheckKnowsWhatEachDocumentedRoleIsFor(t *testing.T) {
	t.Parallel()
	const password = "secret"
	srv := etcdtest.Start(t)
	want := map[string]string{
		"locks": "lock", "semaphores": "semaphore", "trees": "tree", "elections": "election, observe",
		"shards": "shard", "observers": "observe", "inspectors": "observe, inspect", "admins": "admin", "ringers": "ring",
		"members": "member", "operator": "epoch",
	}
	for _, role := range documentedRoles(t, srv.Client(t), password) {
		args := []string{"check", "-o", "json", "--samples=1", "--ttl=600s", "--user", role + ":" + password}
		switch role {
		case "ringers": // who locks may ring, too, and has nothing to ring for
			args = append(args, "--for=ring")
		case "job-7", "legacy", "data", "marks", "controllers", "shard-readers", "shard-operators",
			"member-readers": // no --for is theirs
			args = append(args, "--for=inspect")
		}
		p := holdfast(t, srv.Endpoints(), args...)
		<-p.ended
		ok := ""
		for _, f := range findings(t, p)["permission ok"] {
			ok += strings.TrimPrefix(f.Detail, "for ")
		}
		if ok != want[role] {
			t.Errorf("%s: it may %q, want %q: %s", role, ok, want[role], p.stdout)
		}
	}
}

// A user whom "check --for inspect" calls fit may look at everything, of each kind: with each command that only looks.
func TestInspectorsMayLookAtEachKind(t *testing.T) {
	t.Parallel()
	const password = "secret"
	srv := etcdtest.Start(t)
	sess, ctx := open(t, srv.Client(t), "holder"), deadline(t)
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(locker.NewMutex(sess, "x").Lock(ctx))
	must(locker.NewTreeMutex(sess, "x").Lock(ctx))
	must(locker.NewSemaphore(sess, "x", 2).Acquire(ctx, 1))
	must(election.New(sess, "x").With(election.Options{Value: "v"}).Campaign(ctx))
	running, stop := context.WithCancel(t.Context())
	runs, owned := make(chan error, 1), make(chan struct{}, 1)
	go func() {
		runs <- shard.New(sess, "x", 1).Run(running, func(ctx context.Context, _ *shard.Shard) error {
			owned <- struct{}{}
			<-ctx.Done()
			return nil
		})
	}()
	<-owned
	defer func() { stop(); <-runs }()
	documentedRoles(t, srv.Client(t), password)
	user := "--user=inspectors:" + password
	holdfast(t, srv.Endpoints(), "check", "--for=inspect", "--ttl=600s", user).exits(0)
	holdfast(t, srv.Endpoints(), "ls", "--sessions", user).exits(0)
	holdfast(t, srv.Endpoints(), "epoch", user).exits(0)
	for _, kind := range layout.Kinds {
		name := "x"
		if kind == "shard" {
			name = "x/0"
			holdfast(t, srv.Endpoints(), "show", "x", "--kind=shard", user).exits(0)
			watch(t, srv, "x", "--kind=shard", user)
		}
		ls := holdfast(t, srv.Endpoints(), "ls", "--kind", string(kind), user).exits(0)
		if !strings.Contains(ls.stdout.String(), name) {
			t.Errorf("ls --kind %s: %s", kind, ls.stdout)
		}
		prints(t, srv, name, "ls", "--watch", "--kind", string(kind), user)
		holdfast(t, srv.Endpoints(), "show", name, "--kind", string(kind), user).exits(0)
		if kind != "semaphore" { // neither watch nor explain takes one
			holdfast(t, srv.Endpoints(), "explain", name, "--kind", string(kind), user).exits(0)
			watch(t, srv, name, "--kind", string(kind), user)
		}
	}
}

// watch runs "holdfast watch" until it has printed something.
func watch(t *testing.T, srv *etcdtest.Server, args ...string) {
	t.Helper()
	prints(t, srv, "\n", append([]string{"watch"}, args...)...)
}

// prints runs a command that goes on until it has printed something.
func prints(t *testing.T, srv *etcdtest.Server, want string, args ...string) {
	t.Helper()
	p := holdfast(t, srv.Endpoints(), args...)
	p.prints(p.stdout, want)
	_ = p.cmd.Process.Kill()
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatalf("%v does not end", args)
	}
}
