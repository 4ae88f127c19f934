package etcdtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdtest"
)

func TestClusterIsOneStore(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 3)
	if n := len(c.Endpoints()); n != 3 {
		t.Fatalf("%d endpoints", n)
	}
	mustPut(t, c.Client(t), "a", "1")
	for i, m := range c.Members() {
		if m != c.Member(i) {
			t.Errorf("Members()[%d] is not Member(%d)", i, i)
		}
		if got := mustGet(t, m.Client(t), "a"); got != "1" {
			t.Errorf("member %d has a = %q", i, got)
		}
	}
}

func TestClusterElectsAnotherLeader(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 3)
	cli := c.Client(t)
	first, err := c.Leader(withTimeout(t))
	if err != nil {
		t.Fatal(err)
	}
	mustPut(t, cli, "a", "1")
	first.Stop()
	second, err := c.Leader(withTimeout(t))
	if err != nil {
		t.Fatal(err)
	}
	if second == first {
		t.Fatal("a stopped member leads")
	}
	mustPut(t, second.Client(t), "a", "2")
	if err := first.Restart(); err != nil {
		t.Fatal(err)
	}
	if got := mustGet(t, first.Client(t), "a"); got != "2" {
		t.Fatalf("the member that came back has a = %q, want 2", got)
	}
}

func TestClusterWithoutQuorumDoesNothing(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 3)
	cli := c.Member(0).Client(t)
	mustPut(t, cli, "a", "1")
	c.Member(1).Stop()
	c.Member(2).Stop()

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := cli.Put(ctx, "a", "2"); err == nil {
		t.Error("a write succeeded without a quorum")
	}
	if leader, err := c.Leader(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a quorum the leader is %v, error %v", leader, err)
	}

	if err := c.Member(2).Restart(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Leader(withTimeout(t)); err != nil {
		t.Fatal(err)
	}
	mustPut(t, cli, "a", "3")
}
