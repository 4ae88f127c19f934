package etcdtest_test

import (
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
)

// describe formats events: "rev 2: + a", "rev 3: - a (created at 2)".
func describe(events []*clientv3.Event) (lines []string) {
	for _, ev := range events {
		line := fmt.Sprintf("rev %d: ", ev.Kv.ModRevision)
		if ev.Type == clientv3.EventTypeDelete {
			line += fmt.Sprintf("- %s (created at %d)", ev.Kv.Key, ev.PrevKv.CreateRevision)
		} else {
			line += fmt.Sprintf("+ %s", ev.Kv.Key)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestHistoryHasEveryChange(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	if got := srv.History(t, ""); len(got) != 0 {
		t.Fatalf("a new server has the history %v", got)
	}
	mustPut(t, cli, "lock/a", "")
	mustPut(t, cli, "other", "")
	if _, err := cli.Delete(withTimeout(t), "lock/a"); err != nil {
		t.Fatal(err)
	}
	lease, err := cli.Grant(withTimeout(t), 60)
	if err != nil {
		t.Fatal(err)
	}
	_, err = cli.Txn(withTimeout(t)).
		Then(clientv3.OpPut("lock/b", "", clientv3.WithLease(lease.ID)), clientv3.OpPut("lock/c", "")).Commit()
	if err != nil {
		t.Fatal(err)
	}
	srv.Revoke(t, lease.ID)
	srv.Revoke(t, lease.ID)
	mustPut(t, cli, "other", "") // Events must wait for this revision, although the key is outside the prefix
	want := []string{
		"rev 2: + lock/a", "rev 4: - lock/a (created at 2)",
		"rev 5: + lock/b", "rev 5: + lock/c", "rev 6: - lock/b (created at 5)",
	}
	if got := describe(srv.History(t, "lock/")); !slices.Equal(got, want) {
		t.Fatalf("history:\n%q\nwant\n%q", got, want)
	}
}

func TestRecorderOutlivesCompactionAndRestart(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	rec := srv.Record(t, "a")
	for range 100 {
		mustPut(t, cli, "a", "")
	}
	if rev := srv.Compact(t); rev != 101 {
		t.Fatalf("compacted at %d, want 101", rev)
	}
	srv.Compact(t)
	if resp := <-cli.Watch(t.Context(), "a", clientv3.WithRev(2)); resp.Err() != rpctypes.ErrCompacted {
		t.Fatalf("a watch of what was compacted: %v", resp.Err())
	}
	srv.Stop()
	if err := srv.Restart(); err != nil {
		t.Fatal(err)
	}
	mustGet(t, cli, "a") // clientv3 retries until it is connected
	mustPut(t, cli, "a", "")
	events := rec.Events(t)
	if len(events) != 101 {
		t.Fatalf("%d events, want 101", len(events))
	}
	for i, ev := range events {
		if ev.Kv.ModRevision != int64(i+2) {
			t.Fatalf("event %d is of revision %d", i, ev.Kv.ModRevision)
		}
	}
}

func TestKeysAreInOrderOfCreation(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 3)
	cli := c.Client(t)
	for _, key := range []string{"q/c", "q/a", "p", "q/b"} {
		mustPut(t, cli, key, "")
	}
	mustPut(t, cli, "q/c", "again")
	var got []string
	for _, kv := range c.Keys(t, "q/") {
		got = append(got, string(kv.Key))
	}
	if want := []string{"q/c", "q/a", "q/b"}; !slices.Equal(got, want) {
		t.Fatalf("keys %q, want %q", got, want)
	}
}

func TestWaitForKeys(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	srv.WaitForKeys(t, "q/", 0)
	done := make(chan struct{})
	go func() { // ends with its puts
		defer close(done)
		for i := range 3 {
			for _, key := range []string{"other", "other", fmt.Sprint("q/", i), "other", "other"} {
				if _, err := cli.Put(t.Context(), key, ""); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	kvs := srv.WaitForKeys(t, "q/", 3)
	if string(kvs[2].Key) != "q/2" {
		t.Fatalf("keys %v", kvs)
	}
	<-done
}
