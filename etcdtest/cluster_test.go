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
	leader, err := c.Leader(withTimeout(t))
	if err != nil {
		t.Fatal(err)
	}
	cli := leader.Client(t)
	mustPut(t, cli, "a", "1")
	for _, m := range c.Members() {
		if m != leader {
			m.Stop()
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := c.Leader(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a leader without followers: error %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := cli.Put(short, "a", "2"); err == nil {
		t.Error("a write succeeded without a quorum")
	}

	for _, m := range c.Members() {
		if m != leader {
			if err := m.Restart(); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if _, err := c.Leader(withTimeout(t)); err != nil {
		t.Fatal(err)
	}
	mustPut(t, cli, "a", "3")
}
