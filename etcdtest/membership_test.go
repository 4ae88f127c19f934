package etcdtest_test

import (
	"context"
	"errors"
	"net"
	"slices"
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

// memberIDs returns the IDs of the members according to the cluster. All must have published their names, which they do
// before they serve.
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
			t.Errorf("member %x has not started", m.ID)
		}
	}
	return ids
}

func TestClientsOutliveTheReplacementOfEveryMember(t *testing.T) {
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
				// A serializable read shows that it has the data itself.
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

func TestNewMemberCanBePartitionedStoppedAndRestarted(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 3)
	m, others := c.Member(0), c.Members()[1:]
	mustReplace(t, c, m)
	mustReplace(t, c, m)
	here := m.Client(t)
	mustPut(t, here, "a", "1")

	c.Partition(m)
	if _, err := here.Get(briefly(t), "a"); err == nil {
		t.Error("it answered a read from its side of a partition")
	}
	c.Heal()
	m.Stop()
	leaderAndFollower(t, c) // there is one
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
	follower.Stop() // so the quorum needs the new member
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

func mustAdd(t testing.TB, c *etcdtest.Cluster) *etcdtest.Server {
	t.Helper()
	m, err := c.Add(withTimeout(t))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestClusterMovesToNewAddresses(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]etcdtest.Options{"goroutines": {}, "processes": {Processes: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := etcdtest.StartCluster(t, 3, opts)
			history := c.Record(t, "")
			before := memberIDs(t, c.Client(t))
			first := c.Endpoints()
			mustPut(t, c.Client(t), "a", "1")
			for _, old := range c.Members() {
				added := mustAdd(t, c)
				resp, err := added.Client(t).Get(withTimeout(t), "a", clientv3.WithSerializable())
				if err != nil || len(resp.Kvs) != 1 {
					t.Errorf("the new member has a = %v, %v", resp, err)
				}
				if err := c.Remove(withTimeout(t), old); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := c.Leader(withTimeout(t)); err != nil { // the last one may have been removed
				t.Fatal(err)
			}
			cli := c.Client(t)
			if got := mustGet(t, cli, "a"); got != "1" {
				t.Errorf("a = %q, want 1", got)
			}
			mustPut(t, cli, "b", "1")
			if n := len(history.Events(t)); n != 2 {
				t.Errorf("a Recorder that is older than all members has %d events, want 2", n)
			}
			if kvs := c.Keys(t, ""); len(kvs) != 2 {
				t.Errorf("the helpers see %d keys, want 2", len(kvs))
			}
			for id := range memberIDs(t, cli) {
				if before[id] {
					t.Errorf("%x is still a member", id)
				}
			}
			for _, addr := range c.Endpoints() {
				if slices.Contains(first, addr) {
					t.Errorf("%s is still an endpoint", addr)
				}
			}
			if len(c.Members()) != 3 || len(c.Endpoints()) != 3 {
				t.Errorf("members %v, endpoints %v", c.Members(), c.Endpoints())
			}
		})
	}
}

func TestClusterGrowsFromOneMemberAndShrinks(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 1)
	mustPut(t, c.Client(t), "a", "1")
	first, second, third := c.Member(0), mustAdd(t, c), mustAdd(t, c)
	first.Stop()
	if _, err := c.Leader(withTimeout(t)); err != nil { // a request to a member without a leader may wait for 5 s
		t.Fatal(err)
	}
	if got := mustGet(t, c.Client(t), "a"); got != "1" {
		t.Errorf("a = %q, want 1", got)
	}
	// A partition affects new members like the others.
	c.Partition(second)
	if _, err := third.Client(t).Get(briefly(t), "a"); err == nil {
		t.Error("a minority answered a read")
	}
	c.Heal()
	if _, err := c.Leader(withTimeout(t)); err != nil {
		t.Fatal(err)
	}
	gone := first.Endpoints()[0]
	for _, m := range []*etcdtest.Server{first, second} {
		if err := c.Remove(withTimeout(t), m); err != nil {
			t.Fatal(err)
		}
	}
	if leader, err := c.Leader(withTimeout(t)); leader != third {
		t.Fatalf("the leader is %v, %v", leader, err)
	}
	third.Stop() // its data is its own, and not of the first
	if err := third.Restart(); err != nil {
		t.Fatal(err)
	}
	mustPut(t, c.Client(t), "a", "2")
	if err := first.Restart(); err == nil {
		t.Error("a removed member was restarted")
	}
	if err := c.Remove(withTimeout(t), third); err == nil {
		t.Error("the last member was removed")
	}
	if err := c.Remove(withTimeout(t), first); err == nil {
		t.Error("a member was removed twice")
	}
	// A client that still knows the removed members does not meet a later one by their address.
	if l, err := net.Listen("tcp", gone); err == nil {
		l.Close()
		t.Errorf("the address %s of a removed member is free to take", gone)
	}
}

func TestAddWithoutAQuorumEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 2)
	c.Member(0).Stop()
	if _, err := c.Add(briefly(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if n := len(c.Members()); n != 2 {
		t.Errorf("%d members", n)
	}
}
