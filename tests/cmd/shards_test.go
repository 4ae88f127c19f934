//go:build linux

package cmd

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/shard"
)

// own has a member own shards until the test ends, or stop is called.
func own(t *testing.T, srv *etcdtest.Server, name string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	sess := open(t, srv.Client(t), name)
	done := make(chan struct{})
	go func() { // joined by stop
		defer close(done)
		_ = shard.New(sess, "orders", 4).Run(ctx, func(ctx context.Context, _ *shard.Shard) error {
			<-ctx.Done()
			return nil
		})
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// owners waits until these members own all shards.
func owners(t *testing.T, srv *etcdtest.Server, names ...string) {
	t.Helper()
	r := shard.NewReader(srv.Client(t), "orders")
	eventually(t, "the shards are shared by "+strings.Join(names, ", "), func() bool {
		now, err := r.Owners(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		found := make(map[string]int) // a shard that moves has no owner for a moment
		for _, o := range now.Owners {
			found[o.Member]++
		}
		return len(now.Owners) == 4 && len(found) == len(names) && !slices.ContainsFunc(names, func(name string) bool {
			return found[name] != 4/len(names)
		})
	})
}

func TestShowAndWatchShards(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	stop := own(t, srv, "host-1:1")
	owners(t, srv, "host-1:1")

	watch := holdfast(t, srv.Endpoints(), "watch", "orders", "--kind", "shard")
	watch.prints(watch.stdout, "owned     shard 3  by host-1:1")
	own(t, srv, "host-2:2")
	owners(t, srv, "host-1:1", "host-2:2")
	watch.prints(watch.stdout, "by host-2:2")

	out := holdfast(t, srv.Endpoints(), "show", "orders", "--kind", "shard").exits(0).stdout.String()
	for _, part := range []string{
		"shard orders: 4 shards, 0 without an owner\n", "      2 owned  host-1:1\n", "      2 owned  host-2:2\n",
		"\n     3 ",
	} {
		if !strings.Contains(out, part) {
			t.Errorf("show does not have %q:\n%s", part, out)
		}
	}
	var all struct {
		Kind    string
		Members []struct{ Name string }
		Shards  []struct{ Owner, Assigned string }
	}
	out = holdfast(t, srv.Endpoints(), "show", "orders", "--kind", "shard", "-o", "json").exits(0).stdout.String()
	if err := json.Unmarshal([]byte(out), &all); err != nil || all.Kind != "shard" || len(all.Members) != 2 ||
		len(all.Shards) != 4 || all.Shards[0].Owner == "" || all.Shards[0].Owner != all.Shards[0].Assigned {
		t.Errorf("%v in %s", err, out)
	}
	out = holdfast(t, srv.Endpoints(), "show", "orders/3", "--kind", "shard").exits(0).stdout.String()
	if !strings.HasPrefix(out, "shard orders/3\n  held by   host-") {
		t.Errorf("show of one shard:\n%s", out)
	}
	out = holdfast(t, srv.Endpoints(), "ls", "--kind", "shard", "orders/").exits(0).stdout.String()
	if strings.Count(out, "shard ") != 4 {
		t.Errorf("ls:\n%s", out)
	}
	holdfast(t, srv.Endpoints(), "kick", "orders/3", "--kind", "shard", "--reason=r").exits(0)
	owners(t, srv, "host-1:1", "host-2:2")
	said := holdfast(t, srv.Endpoints(), "kick", "orders", "--kind", "shard", "--reason=r").exits(64).stderr.String()
	if !strings.Contains(said, "such as orders/0") {
		t.Errorf("kick of all: %s", said)
	}
	stop()
	watch.prints(watch.stdout, "by host-2:2, before by host-1:1")
	watch.signal(syscall.SIGINT)
	watch.exits(130)
}

func TestResizeShards(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	stop := own(t, srv, "host-1:1")
	owners(t, srv, "host-1:1")
	refused := holdfast(t, srv.Endpoints(), "shards", "resize", "orders", "8").exits(75).stderr.String()
	if !strings.Contains(refused, `members run: ["host-1:1"]`) {
		t.Errorf("%s", refused)
	}
	stop()
	out := holdfast(t, srv.Endpoints(), "shards", "resize", "orders", "8").exits(0).stdout.String()
	if out != "there are 8 shards orders now, before 4\n" {
		t.Errorf("%s", out)
	}
	out = holdfast(t, srv.Endpoints(), "show", "orders", "--kind", "shard").exits(0).stdout.String()
	if !strings.HasPrefix(out, "shard orders: 8 shards, 8 without an owner\n") {
		t.Errorf("%s", out)
	}
	// An owner has died, and its claim stands for minutes.
	died := layout.Claim{LockDelay: time.Second, ToldWithin: 2 * time.Second}
	if _, err := srv.Client(t).Put(deadline(t), "holdfast/shard/orders/0/@claim/5eed-X", died.Encode()); err != nil {
		t.Fatal(err)
	}
	holdfast(t, srv.Endpoints(), "shards", "resize", "orders", "9", "--command-timeout=1s").exits(0)
	holdfast(t, srv.Endpoints(), "shards", "resize", "other", "8").exits(1)
	holdfast(t, srv.Endpoints(), "shards", "resize", "orders", "many").exits(64)
	holdfast(t, srv.Endpoints(), "shards", "resize", "orders", "0").exits(64)
}

func TestMembersOfShardsAreDrainedAndShardsMoved(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	own(t, srv, "a")
	own(t, srv, "b")
	owners(t, srv, "a", "b")
	run := func(code int, args ...string) string {
		p := holdfast(t, srv.Endpoints(), append([]string{"shards"}, args...)...).exits(code)
		return p.stdout.String() + p.stderr.String()
	}
	has := func(out, part string) {
		t.Helper()
		if !strings.Contains(out, part) {
			t.Errorf("%q does not have %q", out, part)
		}
	}
	has(run(0, "drain", "orders", "--member", "a"), "member a of shards orders is drained")
	owners(t, srv, "b")
	has(run(0, "move", "orders", "3", "--to", "a", "--for", "1m"), "shard 3 of orders is pinned to a until ")
	out := holdfast(t, srv.Endpoints(), "show", "orders", "--kind", "shard").exits(0).stdout.String()
	has(out, "      0 owned  a, drained by ")
	has(out, "@") // the operator, as USER@HOST, not a process that has ended
	has(out, "  pin     shard 3 to a until ")
	has(out, ", not in force")
	has(run(0, "move", "orders", "3", "--to", "b"), ", which replaces its pin to a")
	has(run(0, "undrain", "orders", "--member", "a", "-o", "json"), `"was_drained":true`)
	has(run(0, "undrain", "orders", "--member", "a"), "was not drained")
	has(run(1, "drain", "orders", "--member", "c"), `have no member "c"; there are: ["a" "b"]`)
	has(run(1, "move", "orders", "4", "--to", "a"), "there is no shard 4 of")
	run(64, "drain", "orders")
	run(64, "move", "orders", "x", "--to", "a")
	run(64, "move", "orders", "1", "--to", "a", "--for", "25h")
}
