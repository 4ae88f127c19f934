package robustness

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
)

// clientTo returns a client of the endpoints and closes it at the end of the test.
func clientTo(t *testing.T, endpoints ...string) *clientv3.Client {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cli.Close() })
	return cli
}

// leaderAndOthers returns etcd's leader and the endpoints of the other members.
func leaderAndOthers(t *testing.T, cluster *etcdtest.Cluster) (leader *etcdtest.Server, others []string) {
	t.Helper()
	leader, err := cluster.Leader(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	return leader, endpointsExcept(cluster, leader)
}

// endpointsExcept returns the endpoints of all members but one.
func endpointsExcept(cluster *etcdtest.Cluster, one *etcdtest.Server) (addrs []string) {
	for _, m := range cluster.Members() {
		if m != one {
			addrs = append(addrs, m.Endpoints()...)
		}
	}
	return addrs
}

func restart(t *testing.T, members ...*etcdtest.Server) {
	t.Helper()
	for _, m := range members {
		if err := m.Restart(); err != nil {
			t.Fatal(err)
		}
	}
}

// maintain performs routine maintenance: a rolling restart, then the replacement of etcd's leader by a new member. It
// defragments every member that starts, compacts the history, and calls check after each of the two steps.
func maintain(t *testing.T, cluster *etcdtest.Cluster, check func(step string)) {
	t.Helper()
	defragment := func(m *etcdtest.Server) {
		t.Helper()
		own := m.Client(t)
		await(t, "the member serves requests", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := own.Get(ctx, "x")
			return err == nil
		})
		if _, err := own.Defragment(deadline(t), m.Endpoints()[0]); err != nil {
			t.Error(err)
		}
		cluster.Compact(t)
	}
	for _, m := range cluster.Members() {
		m.Stop()
		restart(t, m)
		defragment(m)
	}
	check("rolling restart")
	leader, _ := leaderAndOthers(t, cluster)
	if err := cluster.Replace(deadline(t), leader); err != nil {
		t.Fatal(err)
	}
	defragment(leader)
	check("replacement of a member")
}

// hasKey reports whether the member that cli is connected to has a key in its own store. The read is serializable, so
// it works without a quorum and may be stale.
func hasKey(t *testing.T, cli *clientv3.Client, key string) bool {
	t.Helper()
	resp, err := cli.Get(deadline(t), key, clientv3.WithSerializable())
	return err == nil && len(resp.Kvs) == 1
}

// unconfirmed is the time since the last confirmed renewal of the session was sent.
func unconfirmed(sess *session.Session) time.Duration {
	l := lease.Open(sess).Lease()
	return l.Trust() - l.Remaining()
}

// awaitRenewal waits until etcd confirms a renewal that is sent after this call.
func awaitRenewal(t *testing.T, sess *session.Session) {
	t.Helper()
	now := time.Now()
	await(t, "a renewal is confirmed", func() bool { return unconfirmed(sess) < time.Since(now) })
}

// endsByDeadline checks that a call that cannot succeed returns DeadlineExceeded when its context ends. The limit of 10
// s is for slow machines.
func endsByDeadline(t *testing.T, what string, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 10*time.Second {
		t.Errorf("%s returned after %v: %v", what, time.Since(start), err)
	}
}
