package etcdtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/etcdtest"
)

// briefly is a context for calls that must not succeed.
func briefly(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// leaderAndFollower returns the leader of a cluster and another member.
func leaderAndFollower(t testing.TB, c *etcdtest.Cluster) (leader, follower *etcdtest.Server) {
	t.Helper()
	leader, err := c.Leader(withTimeout(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, follower = range c.Members() {
		if follower != leader {
			break
		}
	}
	return leader, follower
}

// acknowledged repeats a write until etcd has acknowledged it. One that is sent during an election may be lost and time
// out, and on a busy machine members elect often: after 100 ms without a heartbeat.
func acknowledged(t testing.TB, write func(ctx context.Context) error) {
	t.Helper()
	ctx := withTimeout(t)
	for {
		err := write(ctx)
		if err == nil {
			return
		}
		if etcd, ok := errors.AsType[rpctypes.EtcdError](err); !ok || etcd.Code() != codes.Unavailable {
			t.Fatal(err)
		}
	}
}

// grant returns a new lease.
func grant(t testing.TB, cli *clientv3.Client) (lease clientv3.LeaseID) {
	t.Helper()
	acknowledged(t, func(ctx context.Context) error {
		resp, err := cli.Grant(ctx, 600)
		if err == nil {
			lease = resp.ID
		}
		return err
	})
	return lease
}

func TestPartitionedLeaderIsReplaced(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 3)
	leader, follower := leaderAndFollower(t, c)
	c.Partition(leader)
	mustBeMinority(t, c, leader, follower)
}

func TestPartitionedFollowerRepliesToNoLinearizableRequest(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]etcdtest.Options{"goroutines": {}, "processes": {Processes: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := etcdtest.StartCluster(t, 3, opts)
			leader, follower := leaderAndFollower(t, c)
			here := follower.Client(t)
			lease := grant(t, here)
			if _, err := here.KeepAliveOnce(withTimeout(t), lease); err != nil {
				t.Fatal(err)
			}
			c.Partition(follower)
			// It still believes that it has a leader, to which it would forward the renewal.
			if _, err := here.KeepAliveOnce(briefly(t), lease); err == nil {
				t.Error("a renewal has passed the partition")
			}
			mustBeMinority(t, c, follower, leader)
			if _, err := here.KeepAliveOnce(withTimeout(t), lease); err != nil {
				t.Errorf("after Heal: %v", err)
			}
		})
	}
}

// mustBeMinority checks that minority can do nothing alone, then heals the partition.
func mustBeMinority(t *testing.T, c *etcdtest.Cluster, minority, other *etcdtest.Server) {
	t.Helper()
	here, there := minority.Client(t), other.Client(t)
	if _, err := here.Put(briefly(t), "a", "1"); err == nil {
		t.Error("a minority accepted a write")
	}
	if _, err := here.Get(briefly(t), "a"); err == nil {
		t.Error("a minority answered a read")
	}
	if _, err := here.Get(withTimeout(t), "a", clientv3.WithSerializable()); err != nil {
		t.Errorf("clients do not reach the minority: %v", err)
	}
	if leader, err := c.Leader(withTimeout(t)); err != nil || leader == minority {
		t.Errorf("leader %v, %v", leader, err)
	}
	acknowledged(t, func(ctx context.Context) error {
		_, err := there.Put(ctx, "b", "1")
		return err
	})
	lease := grant(t, there)
	if _, err := there.KeepAliveOnce(withTimeout(t), lease); err != nil {
		t.Errorf("the majority does not renew: %v", err)
	}
	c.Heal()
	if got := mustGet(t, here, "b"); got != "1" {
		t.Errorf("after Heal b = %q, want 1", got)
	}
}

func TestPartitionEndsThePreviousOne(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 3)
	c.Partition(c.Member(0))
	c.Partition(c.Member(1))
	mustGet(t, c.Member(0).Client(t), "a")
	if _, err := c.Member(1).Client(t).Get(briefly(t), "a"); err == nil {
		t.Error("a minority answered a read")
	}
}

func TestPartitionOutlivesARestart(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 3)
	m := c.Member(2)
	c.Partition(m)
	m.Stop()
	if err := m.Restart(); err != nil {
		t.Fatal(err)
	}
	here := m.Client(t)
	if _, err := here.Get(briefly(t), "a"); err == nil {
		t.Error("it answered a read")
	}
	c.Heal()
	mustGet(t, here, "a")
}

func TestCloseWhilePartitionedLeavesNothingBehind(t *testing.T) {
	others := goleak.IgnoreCurrent()
	c, err := etcdtest.NewCluster(3, etcdtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.Partition(c.Member(0))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	goleak.VerifyNone(t, others)
}

func TestDelayBetweenMembersSlowsCommitsUntilHealed(t *testing.T) {
	t.Parallel()
	const delay = 100 * time.Millisecond
	c := etcdtest.StartCluster(t, 3, etcdtest.Options{DefaultTicks: true})
	leader, follower := leaderAndFollower(t, c)
	put := func(s *etcdtest.Server) time.Duration {
		cli := s.Client(t)
		began := time.Now()
		if _, err := cli.Put(withTimeout(t), "k", ""); err != nil {
			t.Fatal(err)
		}
		return time.Since(began)
	}
	c.Delay(delay)
	if took := put(leader); took < 2*delay {
		t.Errorf("a commit took %v", took)
	}
	if took := put(follower); took < 4*delay {
		t.Errorf("a commit through a follower took %v", took)
	}
	c.Heal()
	const tries = 20 // what was under way comes late
	for i := 0; put(follower) >= 2*delay; i++ {
		if i == tries {
			t.Fatal("commits take long after the delay has ended")
		}
	}
}
