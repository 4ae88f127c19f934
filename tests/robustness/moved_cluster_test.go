package robustness

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// A name is what a client connects to in place of a member's address. It is resolved at each connection, like a DNS
// name.
type name = string

// names is a DNS of the test: it resolves each name to the addresses that it has now.
type names struct {
	mu   sync.Mutex // protects addr
	addr map[name][]string
}

func (n *names) point(to name, addrs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addr[to] = addrs
}

// dial connects to the first address of a name that accepts, as net.Dialer does.
func (n *names) dial(ctx context.Context, of name) (conn net.Conn, err error) {
	n.mu.Lock()
	addrs := n.addr[of]
	n.mu.Unlock()
	err = errors.New("no such name: " + of)
	for _, addr := range addrs {
		if conn, err = new(net.Dialer).DialContext(ctx, "tcp", addr); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// config returns the documented settings for a client of some names.
func (n *names) config(endpoints ...name) clientv3.Config {
	cfg := session.ClientConfig(endpoints...)
	cfg.DialOptions = append(cfg.DialOptions, grpc.WithContextDialer(n.dial))
	return cfg
}

func connectWith(t *testing.T, cfg clientv3.Config) *clientv3.Client {
	t.Helper()
	cli, err := clientv3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// move replaces the members one by one by new ones at new addresses: it adds one, calls between, and removes an old
// one.
func move(t *testing.T, cluster *etcdtest.Cluster, between func(i int, added *etcdtest.Server)) {
	t.Helper()
	for i, old := range cluster.Members() {
		added, err := cluster.Add(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		between(i, added)
		if err := cluster.Remove(deadline(t), old); err != nil {
			t.Fatal(err)
		}
	}
}

// Members are replaced until none of the first is left, and none of their addresses. Three ways for a client to keep up
// are documented; with each, what is held stays held, a waiter keeps its place, and an observer goes on.
func TestLockOutlivesTheReplacementOfEveryMember(t *testing.T) {
	t.Parallel()
	type way struct {
		config  func(cluster *etcdtest.Cluster) clientv3.Config
		between func(t *testing.T, i int, added *etcdtest.Server, clients []*clientv3.Client)
	}
	perMember, one := &names{addr: make(map[name][]string)}, &names{addr: make(map[name][]string)}
	nameOf := func(i int) name { return "etcd-" + strconv.Itoa(i) + ".test:2379" }
	for what, w := range map[string]way{
		"the client asks for the members": {
			config: func(cluster *etcdtest.Cluster) clientv3.Config {
				cfg := session.ClientConfig(cluster.Endpoints()...)
				cfg.AutoSyncInterval = 100 * time.Millisecond
				return cfg
			},
			between: func(t *testing.T, _ int, added *etcdtest.Server, clients []*clientv3.Client) {
				for _, cli := range clients {
					await(t, "the client knows the new member", func() bool {
						return slices.Contains(cli.Endpoints(), "http://"+added.Endpoints()[0])
					})
				}
			},
		},
		"each member has a name": {
			config: func(cluster *etcdtest.Cluster) clientv3.Config {
				var endpoints []name
				for i, addr := range cluster.Endpoints() {
					perMember.point(nameOf(i), addr)
					endpoints = append(endpoints, nameOf(i))
				}
				return perMember.config(endpoints...)
			},
			between: func(_ *testing.T, i int, added *etcdtest.Server, _ []*clientv3.Client) {
				perMember.point(nameOf(i), added.Endpoints()...)
			},
		},
		"all members have one name": {
			config: func(cluster *etcdtest.Cluster) clientv3.Config {
				one.point("etcd.test:2379", cluster.Endpoints()...)
				return one.config("etcd.test:2379")
			},
			between: func(_ *testing.T, _ int, added *etcdtest.Server, _ []*clientv3.Client) {
				one.mu.Lock()
				addrs := slices.Clone(one.addr["etcd.test:2379"])
				one.mu.Unlock()
				one.point("etcd.test:2379", append(addrs[1:], added.Endpoints()...)...)
			},
		},
		"the program sets the addresses": {
			config: func(cluster *etcdtest.Cluster) clientv3.Config {
				return session.ClientConfig(cluster.Endpoints()...)
			},
			between: func(_ *testing.T, _ int, added *etcdtest.Server, clients []*clientv3.Client) {
				for _, cli := range clients {
					cli.SetEndpoints(append(cli.Endpoints()[1:], added.Endpoints()...)...)
				}
			},
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{DefaultTicks: true})
			cfg := w.config(cluster)
			clients := []*clientv3.Client{connectWith(t, cfg), connectWith(t, cfg)}
			opts := session.Options{TTL: 12 * time.Second, Retry: quick}
			sess, other := open(t, clients[0], opts), open(t, clients[1], opts)
			lk := lock(t, sess, "x")
			kept := identity(lk)
			waiting := lockLater(t, cluster, other, 2)
			place := string(cluster.Keys(t, entriesOfLockX)[1].Key)
			observer, err := election.New(other, "x").Observer(deadline(t))
			if err != nil {
				t.Fatal(err)
			}
			defer observer.Close()

			move(t, cluster, func(i int, added *etcdtest.Server) { w.between(t, i, added, clients) })
			awaitRenewal(t, sess)
			mustHold(t, "on new members", lk, sess, kept)
			if len(waiting) != 0 {
				t.Fatal("a waiter holds it too")
			}
			unlock(t, lk)
			if next := <-waiting; next != nil && (next.Key() != place || next.Token() <= lk.Token()) {
				t.Errorf("it waited at %s after token %v, and acquired: %s", place, lk.Token(), identity(next))
			}
			term := campaign(t, election.New(sess, "x"), "leads")
			await(t, "the observer sees the leader", func() bool {
				return observer.Current().Leader.Token == term.Token()
			})
		})
	}
}

// Without any of these a client knows no member in the end. Its session is lost, and says that it cannot connect.
func TestSessionIsLostWhenItsClientKnowsOnlyRemovedMembers(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{DefaultTicks: true})
	sess := open(t, connectWith(t, session.ClientConfig(cluster.Endpoints()...)), session.Options{TTL: 3 * time.Second})
	lk := lock(t, sess, "x")
	move(t, cluster, func(int, *etcdtest.Server) {})
	<-lk.Done()
	var lost *holdfast.LostError
	if err := lk.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired {
		t.Errorf("Check: %v", err)
	}
}
