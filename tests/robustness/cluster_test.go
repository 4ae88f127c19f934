package robustness

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// What the tests of locks and of elections on a failing cluster have in common.

// quick notices within 300 ms that a member does not answer.
var quick = backoff.Policy{Attempt: 300 * time.Millisecond}

// clientTo returns a client of some addresses, closed with the test.
func clientTo(t *testing.T, endpoints ...string) *clientv3.Client {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cli.Close() })
	return cli
}

// leaderAndOthers returns etcd's leader and the addresses of the others.
func leaderAndOthers(t *testing.T, cluster *etcdtest.Cluster) (leader *etcdtest.Server, others []string) {
	t.Helper()
	leader, err := cluster.Leader(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	return leader, addressesBut(cluster, leader)
}

// addressesBut returns the addresses of all members but one.
func addressesBut(cluster *etcdtest.Cluster, one *etcdtest.Server) (addrs []string) {
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

// maintain does what operators do and tell nobody of: it restarts the members, one after the other, and replaces etcd's
// leader by a new member; defragments each then, and compacts the history. It calls check between the two and at the end.
func maintain(t *testing.T, cluster *etcdtest.Cluster, check func(step string)) {
	t.Helper()
	tidy := func(m *etcdtest.Server) {
		t.Helper()
		own := m.Client(t)
		await(t, "the member serves", func() bool {
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
		tidy(m)
	}
	check("rolling restart")
	leader, _ := leaderAndOthers(t, cluster)
	if err := cluster.Replace(deadline(t), leader); err != nil {
		t.Fatal(err)
	}
	tidy(leader)
	check("replacement of a member")
}

// stands reports whether the member that cli reaches has a key; it is asked for what it has itself, not for what is true.
func stands(t *testing.T, cli *clientv3.Client, key string) bool {
	t.Helper()
	resp, err := cli.Get(deadline(t), key, clientv3.WithSerializable())
	return err == nil && len(resp.Kvs) == 1
}

// await waits for a state that has no event of its own.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ctx := deadline(t); !ok(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("did not happen: %s", what)
		}
	}
}

// awaitRenewal waits until a renewal is confirmed that was sent after now.
func awaitRenewal(t *testing.T, sess *session.Session) {
	t.Helper()
	now := time.Now()
	await(t, "a renewal is confirmed", func() bool { return sess.Unconfirmed() < time.Since(now) })
}

// endsByItsDeadline makes a call that cannot succeed, with a short deadline. It ends by that and not much later; more than
// that it must not take for a slow machine to say so.
func endsByItsDeadline(t *testing.T, what string, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 10*time.Second {
		t.Errorf("%s: after %v: %v", what, time.Since(start), err)
	}
}
