//go:build linux

package etcdtest_test

import (
	"context"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/holdfast-go/holdfast/etcdtest"
)

// The process of the leader is paused with a request in its socket. The others elect a new leader. When the old one
// continues, it is a follower, and the request arrives late.
func TestPausedLeaderIsReplaced(t *testing.T) {
	c := etcdtest.StartCluster(t, 3, etcdtest.Options{Processes: true})
	first, err := c.Leader(withTimeout(t))
	if err != nil {
		t.Fatal(err)
	}
	cli := first.Client(t)
	mustPut(t, cli, "a", "1")
	if err := first.Pause(); err != nil {
		t.Fatal(err)
	}
	late := put(t, cli, "late", "")
	second, err := c.Leader(withTimeout(t))
	if err != nil {
		t.Fatal(err)
	}
	if second == first {
		t.Fatal("a paused member leads")
	}
	mustPut(t, second.Client(t), "a", "2")
	select {
	case err := <-late:
		t.Fatalf("a paused member answered: %v", err)
	default:
	}
	if err := first.Resume(); err != nil {
		t.Fatal(err)
	}
	if got := mustGet(t, cli, "a"); got != "2" {
		t.Fatalf("after Resume a = %q, want 2", got)
	}
	<-late // a reply of any kind shows that the member works again
}

func TestProcessesStopAndRestart(t *testing.T) {
	srv := etcdtest.Start(t, etcdtest.Options{Processes: true})
	cli := srv.Client(t)
	mustPut(t, cli, "a", "1")
	if err := srv.Pause(); err != nil {
		t.Fatal(err)
	}
	srv.Stop()
	if err := srv.Pause(); err == nil {
		t.Error("a stopped member was paused")
	}
	if err := srv.Restart(); err != nil {
		t.Fatal(err)
	}
	if got := mustGet(t, cli, "a"); got != "1" {
		t.Fatalf("after Restart a = %q, want 1", got)
	}
	if err := srv.Resume(); err != nil {
		t.Fatalf("Resume of what runs: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := srv.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := srv.Pause(); err != nil {
		t.Fatalf("Pause of what is paused: %v", err)
	}
	if _, err := cli.Get(ctx, "a"); err == nil {
		t.Error("a paused member answered")
	}
}

func TestPauseNeedsAProcess(t *testing.T) {
	if err := etcdtest.Start(t).Pause(); err == nil {
		t.Error("a member in this process was paused")
	}
	_, err := etcdtest.New(etcdtest.Options{Processes: true, Configure: func(*embed.Config) {}})
	if err == nil {
		t.Error("Configure was ignored")
	}
}
