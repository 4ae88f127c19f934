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

// A hostname stands for addresses of members. It is resolved at each connection.
type hostname = string

// resolver replaces DNS in the test.
type resolver struct {
	mu   sync.Mutex // protects addr
	addr map[hostname][]string
}

func (r *resolver) point(to hostname, addrs ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addr[to] = addrs
}

// dial connects to the first address of a name that accepts the connection, as net.Dialer does.
func (r *resolver) dial(ctx context.Context, of hostname) (conn net.Conn, err error) {
	r.mu.Lock()
	addrs := r.addr[of]
	r.mu.Unlock()
	err = errors.New("no such name: " + of)
	for _, addr := range addrs {
		if conn, err = new(net.Dialer).DialContext(ctx, "tcp", addr); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// config returns the documented settings for a client of these hostnames.
func (r *resolver) config(endpoints ...hostname) clientv3.Config {
	cfg := session.ClientConfig(endpoints...)
	cfg.DialOptions = append(cfg.DialOptions, grpc.WithContextDialer(r.dial))
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

// replaceMembers replaces each member by one at a new address: it adds the new one, calls between, and removes the old
// one.
func replaceMembers(t *testing.T, cluster *etcdtest.Cluster, between func(i int, added *etcdtest.Server)) {
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

// All members are replaced by members at new addresses. With each documented way for a client to follow them, a lock
// stays held, a waiter keeps its place, and an observer continues.
func TestLockSurvivesReplacementOfEveryMember(t *testing.T) {
	t.Parallel()
	type way struct {
		config  func(cluster *etcdtest.Cluster) clientv3.Config
		between func(t *testing.T, i int, added *etcdtest.Server, clients []*clientv3.Client)
	}
	perMember, one := &resolver{addr: make(map[hostname][]string)}, &resolver{addr: make(map[hostname][]string)}
	nameOf := func(i int) hostname { return "etcd-" + strconv.Itoa(i) + ".test:2379" }
	for what, w := range map[string]way{
		"the client syncs its endpoints": {
			config: func(cluster *etcdtest.Cluster) clientv3.Config {
				cfg := session.ClientConfig(cluster.Endpoints()...)
				cfg.AutoSyncInterval = 100 * time.Millisecond
				return cfg
			},
			between: func(t *testing.T, _ int, added *etcdtest.Server, clients []*clientv3.Client) {
				for _, cli := range clients {
					await(t, "the client lists the new member", func() bool {
						return slices.Contains(cli.Endpoints(), "http://"+added.Endpoints()[0])
					})
				}
			},
		},
		"each member has a hostname": {
			config: func(cluster *etcdtest.Cluster) clientv3.Config {
				var endpoints []hostname
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
		"all members share a hostname": {
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
		"the program sets the endpoints": {
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
			opts := session.Options{TTL: surviving}
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

			replaceMembers(t, cluster, func(i int, added *etcdtest.Server) { w.between(t, i, added, clients) })
			awaitRenewal(t, sess)
			mustHold(t, "on new members", lk, sess, kept)
			if len(waiting) != 0 {
				t.Fatal("the waiter holds the lock, too")
			}
			unlock(t, lk)
			if next := <-waiting; next != nil && (next.Key() != place || next.Token() <= lk.Token()) {
				t.Errorf("the waiter queued as %s after token %v, and acquired: %s", place, lk.Token(), identity(next))
			}
			term := campaign(t, election.New(sess, "x"), "leads")
			await(t, "the observer sees the leader", func() bool {
				return observer.Current().Leader.Token == term.Token()
			})
		})
	}
}

// A client that does not follow the members cannot connect to any in the end, and its session is lost.
func TestSessionIsLostWhenItsClientKnowsOnlyRemovedMembers(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{DefaultTicks: true})
	sess := open(t, connectWith(t, session.ClientConfig(cluster.Endpoints()...)), session.Options{TTL: 3 * time.Second})
	lk := lock(t, sess, "x")
	replaceMembers(t, cluster, func(int, *etcdtest.Server) {})
	<-lk.Done()
	var lost *holdfast.LostError
	if err := lk.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired {
		t.Errorf("Check: %v", err)
	}
}
