package raftlog_test

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	"github.com/holdfast-go/holdfast/tests/internal/raftlog"
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestRaftLogTellsWhichMemberRevokedALease(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{DefaultTicks: true, Dir: dir})
	leader, err := cluster.Leader(testkit.Deadline(t))
	testkit.MustSucceed(t, err)
	leases := make(map[string]clientv3.LeaseID)
	for _, how := range []string{"expired", "leader", "follower"} {
		lease, err := leader.Client(t).Grant(testkit.Deadline(t), 2)
		testkit.MustSucceed(t, err)
		leases[how] = lease.ID
	}
	for _, m := range cluster.Members() {
		how := "follower"
		if m == leader {
			how = "leader"
		}
		_, err := m.Client(t).Revoke(testkit.Deadline(t), leases[how])
		if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) { // by the other follower
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, "the third lease has expired", func() bool {
		all, err := leader.Client(t).Leases(testkit.Deadline(t))
		return err == nil && len(all.Leases) == 0
	})
	log, err := raftlog.Read(dir)
	testkit.MustSucceed(t, err)
	for how, id := range leases {
		if early, why, err := log.Early(id); err != nil || early != (how == "follower") {
			t.Errorf("%s: early %v: %s, %v", how, early, why, err)
		}
	}
}
