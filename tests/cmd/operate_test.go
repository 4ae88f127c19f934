//go:build linux

package cmd

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
)

func TestEpochIsShownAndRaisedAndNeverLowered(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"epoch"}, 0, "is 0\n"},
		{[]string{"epoch", "bump", "2"}, 0, "is 2\n"},
		{[]string{"epoch", "bump", "1"}, 0, "is 2\n"},
		{[]string{"epoch", "-o", "json"}, 0, `{"namespace":"holdfast","epoch":2}`},
		{[]string{"epoch", "--namespace", "other", "-o", "json"}, 0, `{"namespace":"other","epoch":0}`},
		{[]string{"epoch", "bump"}, 64, ""},
		{[]string{"epoch", "bump", "x"}, 64, ""},
		{[]string{"epoch", "bump", "0"}, 64, ""},
		{[]string{"epoch", "bump", "30000"}, 1, ""}, // too large a step
		{[]string{"epoch", "dump", "1"}, 64, ""},
	} {
		p := holdfast(t, srv.Endpoints(), c.args...).exits(c.code)
		if out := p.stdout.String(); !strings.Contains(out, c.want) || (c.want == "") != (out == "") {
			t.Errorf("%v prints %q, want %q", c.args, out, c.want)
		}
	}
	if n, err := etcdfence.Epoch(deadline(t), srv.Client(t), ""); n != 2 || err != nil {
		t.Errorf("the epoch in etcd is %d, %v", n, err)
	}
	if lk := hold(t, open(t, srv.Client(t), ""), "x"); lk.Token().Epoch() != 2 {
		t.Errorf("the next token has epoch %d", lk.Token().Epoch())
	}
}

// finding is a line of "holdfast check -o json".
type finding struct {
	Check, Result, Detail, Advice string
	Fit                           *bool
}

// findings are what a check has printed, by check and result.
func findings(t *testing.T, p *process) map[string][]finding {
	t.Helper()
	all := make(map[string][]finding)
	for line := range strings.Lines(p.stdout.String()) {
		var f finding
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all[f.Check+" "+f.Result] = append(all[f.Check+" "+f.Result], f)
	}
	return all
}

func TestCheckOfAFitCluster(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3)
	// With this TTL the cluster is fit on a busy machine, too, on which commits may be slow.
	found := findings(t, holdfast(t, cluster.Endpoints(), "check", "-o", "json", "--ttl=600s").exits(0))
	found["commit measured"] = append(found["commit ok"], found["commit warning"]...)
	for what, n := range map[string]int{
		"members ok": 1, "version ok": 3, "alarms ok": 3, "space ok": 3, "permission ok": 1, "commit measured": 1,
		"renewal ok": 1, "TTL ok": 1, "clocks info": 1, "permission warning": 1, // no TLS
	} {
		if len(found[what]) != n {
			t.Errorf("%q is found %d times, want %d", what, len(found[what]), n)
		}
	}
	if fit := found[" "]; len(fit) != 1 || fit[0].Fit == nil || !*fit[0].Fit {
		t.Errorf("the verdict: %v", fit)
	}
	if kvs := cluster.Keys(t, ""); len(kvs) != 0 {
		t.Errorf("left in etcd: %v", kvs)
	}
	leases, err := cluster.Client(t).Leases(deadline(t))
	if err != nil || len(leases.Leases) != 0 {
		t.Errorf("leases left: %v, %v", leases, err)
	}
	p := holdfast(t, cluster.Endpoints(), "check", "--ttl=600s").exits(0)
	for line := range strings.Lines(p.stdout.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}

	cluster.Member(0).Stop()
	found = findings(t, holdfast(t, cluster.Endpoints(), "check", "-o", "json", "--command-timeout=5s",
		"--ttl=600s").exits(0))
	if len(found["members warning"]) != 2 { // it does not answer; it is not known
		t.Errorf("with one of three members stopped: %v", found["members warning"])
	}
}

// Without a quorum a check names each member and how it is, also for a user who cannot log in then.
func TestCheckWithoutAQuorumNamesTheMembers(t *testing.T) {
	t.Parallel()
	const password = "secret"
	for name, c := range map[string]struct {
		user []string
		runs string // what is said of the member that runs
	}{
		"no auth": {nil, " has no leader"},
		"auth":    {[]string{"--user=root:" + password}, " runs; how it is"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := etcdtest.StartCluster(t, 3)
			if c.user != nil {
				enableAuth(t, cluster.Client(t), password)
				// A linearizable read: the last member has caught up, and asks for users, too.
				if _, err := cluster.Member(2).Client(t).Get(deadline(t), "x"); !errors.Is(err, rpctypes.ErrUserEmpty) {
					t.Fatal(err)
				}
			}
			endpoints := cluster.Endpoints()
			cluster.Member(0).Stop()
			cluster.Member(1).Stop()
			args := append([]string{"check", "-o", "json", "--command-timeout=2s"}, c.user...)
			var found map[string][]finding
			eventually(t, "the members are named, and the last one has noticed that it has no leader", func() bool {
				found = findings(t, holdfast(t, endpoints, args...).exits(69))
				said := ""
				for _, f := range append(found["members failed"], found["members warning"]...) {
					said += f.Detail + "\n"
				}
				for i, endpoint := range endpoints {
					how := map[bool]string{true: " does not answer", false: c.runs}[i < 2]
					if !strings.Contains(said, strings.TrimPrefix(endpoint, "http://")+how) {
						return false
					}
				}
				return true
			})
			if fit := found[" "]; len(found["quorum failed"]) != 1 || len(fit) != 1 || *fit[0].Fit {
				t.Errorf("found %v", found)
			}
		})
	}
}

// On a healthy cluster a check as a user with a role that only reads is no failure: it tells what the user may do.
func TestCheckJudgesWhatTheUserMayDo(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	const password = "secret"
	cli := srv.Client(t)
	addUser(t, cli, "inspectors", password, clientv3.PermRead, "holdfast/epoch", "holdfast/lock/", "holdfast/tree/",
		"holdfast/sem/", "holdfast/election/", "holdfast/shard/", "holdfast/member/", "holdfast/session/")
	addUser(t, cli, "observers", password, clientv3.PermRead, "holdfast/epoch", "holdfast/election/")
	for _, user := range []string{"admins", "both"} {
		addUser(t, cli, user, password, clientv3.PermRead, "holdfast/epoch")
		allow(t, cli, user, clientv3.PermReadWrite, "holdfast/lock/", "holdfast/tree/")
	}
	allow(t, cli, "both", clientv3.PermReadWrite, "holdfast/session/")
	addUser(t, cli, "ringers", password, clientv3.PermReadWrite, "holdfast/session/")
	addUser(t, cli, "members", password, clientv3.PermReadWrite, "holdfast/session/", "holdfast/member/")
	addUser(t, cli, "member", password, clientv3.PermReadWrite, "holdfast/session/", "holdfast/member/workers/@/")
	enableAuth(t, cli, password)
	for user, c := range map[string]struct {
		args []string
		code int
		ok   string
	}{
		"inspectors":   {nil, 0, "for observe, inspect"},
		"observers":    {nil, 0, "for observe"},
		"inspectors ":  {[]string{"--for=inspect"}, 0, "for inspect"},
		"inspectors  ": {[]string{"--for=lock"}, 1, ""},
		"admins":       {nil, 0, "for admin"},
		"admins ":      {[]string{"--for=admin,ring"}, 1, ""},
		"ringers":      {[]string{"--for=ring"}, 0, "for ring"},
		"members":      {nil, 0, "for member"},
		"member":       {[]string{"--for=member", "--name=workers"}, 0, "for member"},
		"member ":      {[]string{"--for=member"}, 1, ""},
		"both":         {nil, 0, "for lock, tree, admin, ring"},
		"nothing":      {nil, 1, ""},
		"root": {nil, 0, "for lock, tree, semaphore, election, shard, member, observe, inspect, admin, ring, " +
			"epoch"},
	} {
		args := []string{"check", "-o", "json", "--ttl=600s", "--user=" + strings.TrimSpace(user) + ":" + password}
		found := findings(t, holdfast(t, srv.Endpoints(), append(args, c.args...)...).exits(c.code))
		ok := ""
		for _, f := range found["permission ok"] {
			ok += f.Detail
		}
		if ok != c.ok || (len(found["permission failed"]) > 0) != (c.code != 0) {
			t.Errorf("user %s %v: %q, want %q: %v", user, c.args, ok, c.ok, found)
		}
	}
}

// What a check advises is what makes the cluster fit.
func TestPermissionsThatCheckAdvisesMakeItFit(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	const password = "secret"
	enableAuth(t, srv.Client(t), password)
	root, err := clientv3.New(clientv3.Config{Endpoints: srv.Endpoints(), Username: "root", Password: password})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	ctx := deadline(t)
	if _, err := root.RoleAdd(ctx, "ROLE"); err != nil {
		t.Fatal(err)
	}
	if _, err := root.UserGrantRole(ctx, "nothing", "ROLE"); err != nil {
		t.Fatal(err)
	}
	user := "--user=nothing:" + password
	args := []string{"check", "-o", "json", "--ttl=600s", "--for=lock,tree,semaphore,election,inspect,admin,epoch", user}
	found := findings(t, holdfast(t, srv.Endpoints(), args...).exits(1))
	if n := len(found["permission failed"]); n != 8 || len(found["permission ok"]) != 0 {
		t.Errorf("%d permissions are missing, want 8: %v", n, found)
	}
	for _, f := range found["permission failed"] {
		fields := strings.Fields(f.Advice)
		if len(fields) < 6 || strings.Join(fields[:3], " ") != "etcdctl role grant-permission" {
			t.Fatalf("advice %q", f.Advice)
		}
		key, end := fields[len(fields)-1], ""
		if fields[3] == "--prefix" {
			end = clientv3.GetPrefixRangeEnd(key)
		}
		permission := clientv3.PermissionType(clientv3.PermRead)
		if fields[len(fields)-2] == "readwrite" {
			permission = clientv3.PermissionType(clientv3.PermReadWrite)
		}
		if _, err := root.RoleGrantPermission(ctx, "ROLE", key, end, permission); err != nil {
			t.Fatal(err)
		}
	}
	found = findings(t, holdfast(t, srv.Endpoints(), args...).exits(0))
	if len(found["permission ok"]) != 1 || len(found["commit ok"])+len(found["commit warning"]) != 1 {
		t.Errorf("with these permissions: %v", found)
	}
	at := []string{"check", "-o", "json", "--ttl=600s", "--for=lock", "--at", "--name=/app/x", user}
	found = findings(t, holdfast(t, srv.Endpoints(), at...).exits(1))
	var missing []string
	for _, f := range found["permission failed"] {
		missing = append(missing, strings.TrimPrefix(f.Advice, "etcdctl role grant-permission --prefix ROLE "))
	}
	if got := strings.Join(missing, ", "); got != "readwrite /app/x/, readwrite holdfast/claim//app/x/" {
		t.Errorf("for a prefix it lacks %s", got)
	}
	holdfast(t, srv.Endpoints(), "check", "--at", "--name=/app/x").exits(64)
	holdfast(t, srv.Endpoints(), "check", "--at", "--name=/app/x", "--for=shard").exits(64)
	// A campaign would be tried again for ever.
	if p := holdfast(t, srv.Endpoints(), "elect", "x", "--at", user, "--", "true").exits(77); !strings.Contains(
		p.stderr.String(), "readwrite x/: ") {
		t.Errorf("elect without a permission: %s", p.stderr)
	}
	if kvs, err := root.Get(ctx, "", clientv3.WithPrefix()); err != nil || kvs.Count != 0 {
		t.Errorf("left in etcd: %v, %v", kvs, err)
	}
}

func TestCheckOfAFullStore(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t, etcdtest.Options{Configure: func(c *embed.Config) { c.QuotaBackendBytes = 1 << 20 }})
	cli := srv.Client(t)
	hold(t, open(t, srv.Client(t), ""), "held")
	for value := strings.Repeat("x", 1<<14); ; {
		if _, err := cli.Put(deadline(t), "filler", value); errors.Is(err, rpctypes.ErrNoSpace) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	// What cannot be done points to the check.
	for _, args := range [][]string{
		{"run", "x", "--", "true"}, {"elect", "x", "--", "true"}, {"kick", "held", "--reason=r"},
	} {
		p := holdfast(t, srv.Endpoints(), args...).exits(1)
		if said := p.stderr.String(); strings.Count(said, `"holdfast check" says`) != 1 ||
			strings.Contains(said, "outcome unknown") {
			t.Errorf("%v: %s", args, said)
		}
	}
	found := findings(t, holdfast(t, srv.Endpoints(), "check", "-o", "json").exits(1))
	if len(found["alarms failed"]) != 1 || !strings.Contains(found["alarms failed"][0].Advice, "alarm disarm") {
		t.Errorf("alarms: %v", found)
	}
	if len(found["space warning"]) != 1 || len(found["members warning"]) != 1 {
		t.Errorf("space, members: %v", found)
	}
	// With auth etcd shows alarms to root only, but refuses everybody. Each user is told, whatever its role.
	const password = "secret"
	addUser(t, cli, "locks", password, clientv3.PermReadWrite, "holdfast/session/", "holdfast/lock/")
	allow(t, cli, "locks", clientv3.PermRead, "holdfast/epoch")
	addUser(t, cli, "inspectors", password, clientv3.PermRead,
		"holdfast/epoch", "holdfast/lock/", "holdfast/tree/", "holdfast/election/", "holdfast/session/")
	enableAuth(t, cli, password)
	for _, user := range []string{"root", "locks", "inspectors", "nothing"} {
		for _, args := range [][]string{{}, {"--for=lock"}, {"--for=inspect"}} {
			args = append([]string{"check", "-o", "json", "--user", user + ":" + password}, args...)
			found := findings(t, holdfast(t, srv.Endpoints(), args...).exits(1))
			if len(found["alarms failed"]) != 1 || !strings.Contains(found["alarms failed"][0].Advice, "alarm disarm") {
				t.Errorf("%v: %v", args, found)
			}
		}
	}
	remedy := commandsOf(t, filepath.Join("..", "..", "docs", "client.md"), "## When the store is full")
	if _, err := exec.LookPath("etcdctl"); err != nil {
		t.Skip("no etcdctl: apt-get install etcd-client")
	}
	root := "--user=root:" + password
	begin(t, exec.Command("sh", "-c", remedy), "ETCDCTL_API=3", "ETCDCTL_ENDPOINTS="+srv.Endpoints()[0],
		"ETCDCTL_USER=root:"+password).exits(0)
	holdfast(t, srv.Endpoints(), "run", "x", root, "--", "true").exits(0)
	holdfast(t, srv.Endpoints(), "kick", "held", root, "--reason=r", "--wait=0").exits(0)
}

// commandsOf returns the commands of the first block of shell below a heading.
func commandsOf(t *testing.T, file, heading string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, below, _ := strings.Cut(string(text), "\n"+heading+"\n")
	_, block, _ := strings.Cut(below, "```sh\n")
	commands, _, ok := strings.Cut(block, "```")
	if !ok {
		t.Fatalf("%s has no commands below %q", file, heading)
	}
	return commands
}

func TestCheckOfASlowConnection(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	link.Delay(250 * time.Millisecond)       // a session with a TTL of 2 s bears round trips of 450 ms
	check := func(more ...string) *process { // with few requests, since each is slow
		return holdfast(t, link.Endpoints(), append([]string{"check", "--for=lock", "--samples=1"}, more...)...)
	}
	found := findings(t, check("-o", "json", "--ttl=2s").exits(1))
	if len(found["renewal failed"]) != 1 || len(found["TTL warning"]) != 1 || len(found["commit warning"]) != 1 {
		t.Errorf("found: %v", found)
	}
	check("--ttl=60s").exits(0)
}
