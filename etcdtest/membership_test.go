package etcdtest_test

import (
	"context"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
)

func mustReplace(t testing.TB, c *etcdtest.Cluster, m *etcdtest.Server) {
	t.Helper()
	if err := c.Replace(withTimeout(t), m); err != nil {
		t.Fatal(err)
	}
}

// memberIDs returns the IDs of the members, as the cluster knows them. All must have made themselves known by a name,
// which they do before they serve.
func memberIDs(t testing.TB, cli *clientv3.Client) map[uint64]bool {
	t.Helper()
	list, err := cli.MemberList(withTimeout(t))
	if err != nil {
		t.Fatal(err)
	}
	ids := make(map[uint64]bool)
	for _, m := range list.Members {
		ids[m.ID] = true
		if m.Name == "" {
			t.Errorf("member %x does not serve yet", m.ID)
		}
	}
	return ids
}

func TestEveryMemberCanBeReplacedAndClientsGoOn(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]etcdtest.Options{"goroutines": {}, "processes": {Processes: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := etcdtest.StartCluster(t, 3, opts)
			cli, link := c.Client(t), c.Link(t)
			before := memberIDs(t, cli)
			var after map[uint64]bool
			for _, m := range c.Members() {
				mustPut(t, cli, "a", m.Endpoints()[0])
				mustReplace(t, c, m)
				after = memberIDs(t, cli)
				// It has the data itself: it asks nobody.
				resp, err := m.Client(t).Get(withTimeout(t), "a", clientv3.WithSerializable())
				if err != nil || len(resp.Kvs) != 1 || string(resp.Kvs[0].Value) != m.Endpoints()[0] {
					t.Errorf("the new member has a = %v, %v", resp, err)
				}
			}
			if got, want := mustGet(t, cli, "a"), c.Endpoints()[2]; got != want {
				t.Errorf("a = %q, want %q", got, want)
			}
			mustPut(t, link.Client(), "b", "1")
			for id := range after {
				if before[id] {
					t.Errorf("%x is still a member", id)
				}
			}
			if len(after) != 3 {
				t.Errorf("%d members", len(after))
			}
		})
	}
}

func TestReplacedMemberIsOneLikeAnyOther(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 3)
	m, others := c.Member(0), c.Members()[1:]
	mustReplace(t, c, m)
	mustReplace(t, c, m)
	here := m.Client(t)
	mustPut(t, here, "a", "1")

	c.Partition(m)
	if _, err := here.Get(briefly(t), "a"); err == nil {
		t.Error("it has answered a read from its side of a partition")
	}
	c.Heal()
	m.Stop()
	leaderAndFollower(t, c) // so that there is one
	mustPut(t, others[0].Client(t), "a", "2")
	if err := m.Restart(); err != nil {
		t.Fatal(err)
	}
	others[1].Stop()
	if got := mustGet(t, here, "a"); got != "2" {
		t.Errorf("restarted, a = %q, want 2", got)
	}
}

func TestStoppedMemberIsReplaced(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 3)
	leader, follower := leaderAndFollower(t, c)
	mustPut(t, c.Client(t), "a", "1")
	leader.Stop()
	mustReplace(t, c, leader)
	follower.Stop() // so that the new one's vote counts
	if got := mustGet(t, leader.Client(t), "a"); got != "1" {
		t.Errorf("a = %q, want 1", got)
	}
}

func TestReplaceWithoutAQuorumEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 3)
	m, other := c.Member(0), c.Member(1)
	other.Stop()
	m.Stop()
	if err := c.Replace(briefly(t), m); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if err := other.Restart(); err != nil {
		t.Fatal(err)
	}
	mustReplace(t, c, m)
	mustPut(t, m.Client(t), "a", "1")
}

func TestReplaceSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	c, two := etcdtest.StartCluster(t, 3), etcdtest.StartCluster(t, 2)
	for what, err := range map[string]error{
		"a member of another cluster": c.Replace(t.Context(), two.Member(0)),
		"one of two members":          two.Replace(t.Context(), two.Member(0)),
	} {
		if err == nil {
			t.Errorf("%s was replaced", what)
		}
	}
	if err := c.Member(0).Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Replace(t.Context(), c.Member(0)); err == nil {
		t.Error("a closed member was replaced")
	}
}
