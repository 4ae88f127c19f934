package robustness

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// guarded is an etcd with auth on that has the roles of docs/client.md.
type guarded struct {
	srv   *etcdtest.Server
	admin *clientv3.Client
	roles map[string][]permission
}

// permission is what a role may do with the keys from key up to end; end ""
// is key alone.
type permission struct {
	key, end string
	kind     clientv3.PermissionType
}

// password of every user in these tests.
const password = "not-to-be-logged"

// guard starts an etcd, configured by configure if that is not nil.
func guard(t *testing.T, configure func(*embed.Config)) *guarded {
	t.Helper()
	g := &guarded{srv: etcdtest.Start(t, etcdtest.Options{Configure: configure}), roles: documentedRoles(t)}
	g.admin = g.srv.Client(t)
	ctx := deadline(t)
	for role, permissions := range g.roles {
		must(t)(g.admin.RoleAdd(ctx, role))
		for _, p := range permissions {
			g.grant(t, role, p)
		}
	}
	g.user(t, "root", "root")
	must(t)(g.admin.AuthEnable(ctx))
	g.admin = g.client(t, "root", nil)
	return g
}

// documentedRoles reads the commands in docs/client.md, so that what is tested
// is what is documented.
func documentedRoles(t *testing.T) map[string][]permission {
	t.Helper()
	text, err := os.ReadFile("../../docs/client.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]clientv3.PermissionType{
		"read":      clientv3.PermissionType(clientv3.PermRead),
		"write":     clientv3.PermissionType(clientv3.PermWrite),
		"readwrite": clientv3.PermissionType(clientv3.PermReadWrite),
	}
	roles := make(map[string][]permission)
	command := regexp.MustCompile(`(?m)^etcdctl role grant-permission (--prefix )?(\S+) (\S+) (\S+)$`)
	for _, m := range command.FindAllStringSubmatch(string(text), -1) {
		kind, ok := kinds[m[3]]
		if !ok {
			t.Fatalf("docs/client.md: %s", m[0])
		}
		p := permission{key: m[4], kind: kind}
		if m[1] != "" {
			p.end = clientv3.GetPrefixRangeEnd(p.key)
		}
		roles[m[2]] = append(roles[m[2]], p)
	}
	return roles
}

func (g *guarded) grant(t *testing.T, role string, p permission) {
	t.Helper()
	must(t)(g.admin.RoleGrantPermission(deadline(t), role, p.key, p.end, p.kind))
}

func (g *guarded) revoke(t *testing.T, role string, p permission) {
	t.Helper()
	must(t)(g.admin.RoleRevokePermission(deadline(t), role, p.key, p.end))
}

// user adds one with these roles.
func (g *guarded) user(t *testing.T, name string, roles ...string) {
	t.Helper()
	must(t)(g.admin.UserAdd(deadline(t), name, password))
	for _, role := range roles {
		must(t)(g.admin.UserGrantRole(deadline(t), name, role))
	}
}

// client logs in, through link if that is not nil.
func (g *guarded) client(t *testing.T, user string, link *etcdtest.Link, opts ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	cfg := session.ClientConfig(g.srv.Endpoints()...)
	if link != nil {
		cfg.Endpoints, cfg.DialOptions = link.Endpoints(), append(cfg.DialOptions, link.DialOptions()...)
	}
	cfg.DialOptions = append(cfg.DialOptions, opts...)
	cfg.Username, cfg.Password = user, password
	cli, err := clientv3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// must ends the test at an error.
func must(t *testing.T) func(any, error) {
	return func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// tokenKey signs tokens.
const tokenKey = "a key of a test's own"

// shortTokens has tokens expire one to two seconds after they were issued, used or
// not: etcd cuts the end of a JWT to whole seconds. With less, a busy machine would
// use many of them when they have expired.
func shortTokens(t *testing.T) func(*embed.Config) { return signedTokens(t, "2s") }

// signedTokens has etcd issue tokens for a time, and take those that are signed with tokenKey.
func signedTokens(t *testing.T, ttl string) func(*embed.Config) {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(tokenKey), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(c *embed.Config) { c.AuthToken = "jwt,sign-method=HS256,ttl=" + ttl + ",priv-key=" + key }
}

// expire returns when every token issued so far has expired.
func (g *guarded) expire(t *testing.T) {
	t.Helper()
	ctx := deadline(t)
	last, err := g.admin.Authenticate(ctx, "root", password)
	if err != nil {
		t.Fatal(err)
	}
	cfg := session.ClientConfig(g.srv.Endpoints()...)
	cfg.Token = last.Token
	cli, err := clientv3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cli.Close() }()
	await(t, "the last token expires", func() bool {
		_, err := cli.Get(ctx, "x")
		return errors.Is(err, rpctypes.ErrInvalidAuthToken)
	})
}
