//go:build linux

package cmd

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
)

func TestLsListsNamesThatAreHeld(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), "host-1:77")
	long := strings.Repeat("a-long-segment/", 10) + "x"
	hold(t, sess, "billing/a")
	hold(t, sess, "billing/"+long)
	hold(t, sess, "other")
	queue(t, srv, "billing/a", "host-2:1", "host-2:2")
	term, err := election.New(sess, "billing/led").With(election.Options{Value: "node-1"}).Campaign(deadline(t))
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		args []string
		want [][]string // each: fields of a line; "*" for a field that varies
	}{
		{[]string{"ls"}, [][]string{
			{"lock", "0", "*", "host-1:77", "billing/" + long}, {"lock", "2", "*", "host-1:77", "billing/a"},
			{"lock", "0", "*", "host-1:77", "other"}, {"election", "0", "*", "host-1:77", "billing/led"},
		}},
		{[]string{"ls", "billing/a"}, [][]string{
			{"lock", "0", "*", "host-1:77", "billing/" + long}, {"lock", "2", "*", "host-1:77", "billing/a"},
		}},
		{[]string{"ls", "--kind", "election"}, [][]string{{"election", "0", "*", "host-1:77", "billing/led"}}},
		{[]string{"ls", "--namespace", "elsewhere"}, nil},
		{[]string{"ls", "--sessions"}, [][]string{
			{"*", "*", "*", "host-1:77"}, {"*", "*", "*", "host-2:1"}, {"*", "*", "*", "host-2:2"},
		}},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			out := holdfast(t, srv.Endpoints(), c.args...).exits(0).stdout.String()
			lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")[1:]
			if c.args[len(c.args)-1] == "--sessions" {
				slices.SortFunc(lines, func(a, b string) int { return strings.Compare(last(a), last(b)) })
			}
			if len(lines) != len(c.want) {
				t.Fatalf("lines:\n%s\nwant %q", out, c.want)
			}
			for i, line := range lines {
				fields := strings.Fields(line)
				for n, field := range c.want[i] {
					if n >= len(fields) || field != "*" && fields[n] != field {
						t.Errorf("line %q, want the fields %q", line, c.want[i])
						break
					}
				}
			}
		})
	}
	if err := term.Resign(deadline(t)); err != nil {
		t.Error(err)
	}
}

func last(line string) string {
	fields := strings.Fields(line)
	return fields[len(fields)-1]
}

// The claims' lease of a session is revoked by hand: show says so of its entry, and of no other.
func TestShowMarksAnEntryWithoutAClaim(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	hold(t, open(t, cli, "host-1:77"), "x")
	claims, err := cli.Get(deadline(t), "holdfast/lock/x/@claim/", clientv3.WithPrefix())
	if err != nil || len(claims.Kvs) != 1 {
		t.Fatal(claims, err)
	}
	queue(t, srv, "x", "host-2:1")
	show := func(args ...string) string {
		t.Helper()
		return holdfast(t, srv.Endpoints(), append([]string{"show", "x"}, args...)...).exits(0).stdout.String()
	}
	text, all := show(), show("--output=json")
	if strings.Contains(text, "claim     none") || strings.Contains(all, "unclaimed") {
		t.Errorf("marked although the claim stands:\n%s%s", text, all)
	}
	if _, err := cli.Revoke(deadline(t), clientv3.LeaseID(claims.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
	if text := show(); !strings.Contains(text, "claim     none: etcd has lost it") {
		t.Errorf("not marked:\n%s", text)
	}
	var shown struct {
		Entries []struct {
			Owner     string
			Unclaimed bool
		}
	}
	if out := show("--output=json"); json.Unmarshal([]byte(out), &shown) != nil || len(shown.Entries) != 2 ||
		!shown.Entries[0].Unclaimed || shown.Entries[0].Owner != "host-1:77" || shown.Entries[1].Unclaimed {
		t.Errorf("%+v of\n%s", shown, out)
	}
}

func TestShowOfABusyQueueFitsTheTerminalAndIsWholeInAPipe(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	hold(t, open(t, srv.Client(t), "the-holder-on-a-host-with-quite-a-long-name.example.com:12345"), "busy")
	var owners []string
	for i := range 25 {
		owners = append(owners, fmt.Sprintf("waiter-%d-on-a-host-with-quite-a-long-name.example.com:12345", i))
	}
	queue(t, srv, "busy", owners...)

	w := onTerminal(t, srv.Endpoints(), "show", "busy")
	out := w.exits(0).stdout.String()
	shown := 0
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\r\n")
		if n := utf8.RuneCountInString(line); n > 80 && !strings.HasPrefix(line, "  key ") {
			t.Errorf("%d columns: %s", n, line)
		}
		if strings.Contains(line, "waiter-") {
			if !strings.Contains(line, fmt.Sprintf("waiter-%d-", shown)) || !strings.HasSuffix(line, ":12345") {
				t.Errorf("line %q, want waiter %d, cut in the middle", line, shown)
			}
			shown++
		}
	}
	if shown != 20 || !strings.Contains(out, "and 5 more") || !strings.Contains(out, "waiting   25") {
		t.Errorf("%d waiters in\n%s\nwant 20, \"and 5 more\", \"waiting   25\"", shown, out)
	}
	for _, args := range [][]string{{"show", "busy"}, {"ls"}} {
		const owner = "the-holder-on-a-host-with-quite-a-long-name.example.com:12345"
		if out := holdfast(t, srv.Endpoints(), args...).exits(0).stdout.String(); !strings.Contains(out, owner) {
			t.Errorf("%v cuts the owner in a pipe:\n%s", args, out)
		}
	}
	all := holdfast(t, srv.Endpoints(), "show", "--all", "busy").exits(0).stdout.String()
	if n := strings.Count(all, "waiter-"); n != 25 {
		t.Errorf("--all shows %d waiters, want 25", n)
	}
}

func TestShowTellsWhatTheHolderIs(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	lk := hold(t, open(t, srv.Client(t), "host-1:77"), "x")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	out := holdfast(t, srv.Endpoints(), "show", "x").exits(0).stdout.String()
	for _, want := range []string{
		"lock x\n", "held by   host-1:77\n", fmt.Sprintf("pid %d on %s\n", os.Getpid(), host), lk.Key(),
		"token     " + lk.Token().String(), fmt.Sprintf("lease     %x, expires in ", int64(lk.Lease())), "waiting   0\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
	for hint, args := range map[string][]string{"--kind": {"y"}, "below /y// in": {"--at", "/y/"}} {
		free := holdfast(t, srv.Endpoints(), append([]string{"show"}, args...)...).exits(0)
		if out := free.stdout.String(); out != "lock "+args[len(args)-1]+": free\n" {
			t.Errorf("a free lock: %q", out)
		}
		if said := free.stderr.String(); !strings.Contains(said, hint) {
			t.Errorf("the hint for a free lock: %q", said)
		}
	}
}

func TestShowOfALockOfEtcdsOwnClients(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	theirs, err := concurrency.NewSession(srv.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	mu := concurrency.NewMutex(theirs, "/legacy/job")
	if err := mu.Lock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	out := holdfast(t, srv.Endpoints(), "show", "--at", "/legacy/job").exits(0).stdout.String()
	if !strings.Contains(out, "held by   another client\n") || !strings.Contains(out, mu.Key()) {
		t.Errorf("output:\n%s", out)
	}
}

func TestShowAndLsOfASemaphore(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sem := locker.NewSemaphore(open(t, srv.Client(t), "host-1:77"), "uploads", 3)
	for _, weight := range []int{1, 2} {
		p, err := sem.Acquire(deadline(t), weight)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Release(context.Background()) })
	}
	out := holdfast(t, srv.Endpoints(), "show", "--kind", "semaphore", "uploads").exits(0).stdout.String()
	for _, want := range []string{
		"uploads, limit 3\n", "  held by   host-1:77\n", "  weight    1\n", " holds ", "host-1:77, weight 2, revision ",
		"  revision  ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("output lacks %q:\n%s", want, out)
		}
	}
	out = holdfast(t, srv.Endpoints(), "ls", "--kind", "semaphore").exits(0).stdout.String()
	if !strings.Contains(out, "uploads\n") {
		t.Errorf("output:\n%s", out)
	}
}

func TestTextFromEtcdCannotMoveTheCursor(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	hold(t, open(t, srv.Client(t), "evil\x1b[2J\nlock  fake"), "name\x1b[2Jx")
	for _, args := range [][]string{{"ls"}, {"show", "name\x1b[2Jx"}, {"ls", "--sessions"}} {
		out := holdfast(t, srv.Endpoints(), args...).exits(0).stdout.String()
		if strings.ContainsRune(out, '\x1b') || strings.Contains(out, "\nlock  fake") {
			t.Errorf("%v prints control characters: %q", args, out)
		}
	}
}

// The fields that "holdfast help json" promises.
func TestJSONOfShowHasTheDocumentedFields(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), "host-1:77")
	term, err := election.New(sess, "led").With(election.Options{Value: "node-1"}).Campaign(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	var q object
	var first object
	eventually(t, "held_at is known", func() bool {
		out := holdfast(t, srv.Endpoints(), "show", "--kind", "election", "led", "-o", "json").exits(0).stdout.String()
		q = nil
		if err := json.Unmarshal([]byte(out), &q); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		first = q["entries"].([]any)[0].(object)
		return first["held_at"] != nil
	})
	want := []string{"entries", "held", "kind", "name", "revision", "waiting"}
	if got := slices.Sorted(maps.Keys(q)); !slices.Equal(got, want) {
		t.Errorf("fields %q, want %q", got, want)
	}
	want = []string{
		"foreign", "held_at", "host", "key", "lease", "owner", "pid", "queued_at", "revision", "token", "ttl_seconds",
		"value",
	}
	if got := slices.Sorted(maps.Keys(first)); !slices.Equal(got, want) {
		t.Errorf("fields of the entry %q, want %q", got, want)
	}
	lease := fmt.Sprintf("%x", int64(term.Lease()))
	if first["token"] != term.Token().String() || first["lease"] != lease || q["held"] != true {
		t.Errorf("token, lease, held: %v, %v, %v", first["token"], first["lease"], q["held"])
	}
	if _, err := time.Parse(time.RFC3339, first["held_at"].(string)); err != nil {
		t.Error(err)
	}
	out := holdfast(t, srv.Endpoints(), "show", "-o", "json", "free").exits(0).stdout.String()
	if !strings.Contains(out, `"held":false,"waiting":0,"entries":[]`) {
		t.Errorf("a free lock: %s", out)
	}
	help := holdfast(t, nil, "help", "json").exits(0).stdout.String()
	for _, field := range slices.Concat(slices.Collect(maps.Keys(q)), slices.Collect(maps.Keys(first))) {
		if !strings.Contains(help, field) {
			t.Errorf("\"holdfast help json\" lacks %q", field)
		}
	}
}

// explain tells who held, who waited and why each ended: the cause from the log of the holder, on stdin.
func TestExplainTellsWhatHasHappened(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	p := holdfast(t, srv.Endpoints(), run(ignoresTERM, "--drain=1s", "x")...)
	p.pidOf("pid")
	holdfast(t, srv.Endpoints(), "kick", "x", "--reason", "because of INC-7", "--wait=1m").exits(0)
	p.exits(79)
	holdfast(t, srv.Endpoints(), "run", "x", "--", "true").exits(0)
	out := holdfast(t, srv.Endpoints(), "explain", "x").exits(0).stdout.String()
	for _, want := range []string{"lock x: etcd's revisions 1 to ", "held since rev ", "INC-7", ": let go",
		"cause of the loss: not known", "free until rev", "free\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("it lacks %q:\n%s", want, out)
		}
	}
	log := t.TempDir() + "/log"
	if err := os.WriteFile(log, []byte(p.stderr.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	out = holdfast(t, srv.Endpoints(), "explain", "x", "--log", log).exits(0).stdout.String()
	if !strings.Contains(out, "cause of the loss: kicked") || !strings.Contains(out, ": lost, cause kicked") {
		t.Errorf("with a log:\n%s", out)
	}
	out = holdfast(t, srv.Endpoints(), "explain", "x", "-o", "json", "--log", log).exits(0).stdout.String()
	first, _, _ := strings.Cut(out, "\n")
	var spell struct {
		Cause string
		Asked []struct{ Reason string }
	}
	if err := json.Unmarshal([]byte(first), &spell); err != nil || spell.Cause != "kicked" || len(spell.Asked) != 1 {
		t.Errorf("json: %s, %v", out, err)
	}
	holdfast(t, srv.Endpoints(), "explain", "x", "--rev", "999999").exits(1)
	holdfast(t, srv.Endpoints(), "explain", "x", "--kind", "semaphore").exits(1)
}
