package etcdtest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// A Link is a way to etcd that can fail, for one client or a few, while everybody else's stays whole.
//
// Cut, BlackHole, BlackHoleReplies and Delay are faults of the network: proxies on loopback stand before the members, and
// whoever connects to Endpoints goes through them. LoseRequest, LoseReply, Hold and Stall are faults of single RPCs,
// which happen in the clients made by Client and NewClient, or with DialOptions. Faults add up; Heal ends all of them.
//
// All methods may be called by several goroutines at once.
type Link struct {
	network network
	rpcs    *rpcs
	proxies []*proxy
	closing context.CancelFunc

	mu      sync.Mutex // protects what follows
	client  *clientv3.Client
	clients []*clientv3.Client // all that were made, with client
}

// Link returns a new way to etcd, without faults at first, that ends with the test. Before a Cluster it has one address
// for each member, in the order of the members.
func (a *access) Link(t testing.TB) *Link {
	t.Helper()
	l, err := a.NewLink()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// NewLink is Link for programs and examples that have no [testing.TB]: the caller must Close it.
func (a *access) NewLink() (*Link, error) {
	life, closing := context.WithCancel(context.Background())
	l := &Link{rpcs: newRPCs(life), closing: closing}
	for _, endpoint := range a.endpoints {
		p, err := newProxy(through(&l.network), endpoint)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l.proxies = append(l.proxies, p)
	}
	return l, nil
}

// Close closes the clients that were made, and ends the link: what it still holds is lost. Closing again does nothing.
func (l *Link) Close() error {
	l.closing()
	l.mu.Lock()
	clients := l.clients
	l.clients = nil
	l.mu.Unlock()
	for _, cli := range clients {
		cli.Close() // the error only says that the test had closed it already
	}
	l.rpcs.close()
	var errs []error
	for _, p := range l.proxies {
		errs = append(errs, p.close())
	}
	return errors.Join(errs...)
}

// Endpoints returns the addresses of this way to etcd, for [clientv3.Config].
func (l *Link) Endpoints() []string {
	var addrs []string
	for _, p := range l.proxies {
		addrs = append(addrs, p.addr())
	}
	return addrs
}

// DialOptions makes a client that the link did not make itself subject to its RPC faults and part of its counts. It is for
// testing a service that makes its own client:
//
//	clientv3.Config{Endpoints: link.Endpoints(), DialOptions: link.DialOptions()}
func (l *Link) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(l.rpcs.unary),
		grpc.WithChainStreamInterceptor(l.rpcs.stream),
	}
}

// Client returns the client of the link, the same at each call. It is made like those of [Server.Client]; Close closes it.
// Client panics if the link is closed.
func (l *Link) Client() *clientv3.Client {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client == nil {
		cli, err := l.newClient()
		if err != nil {
			panic(err)
		}
		l.client = cli
	}
	return l.client
}

// NewClient returns another client like that of Client, which Close closes too.
func (l *Link) NewClient() (*clientv3.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newClient()
}

func (l *Link) newClient() (*clientv3.Client, error) {
	if l.rpcs.life.Err() != nil {
		return nil, errors.New("etcdtest: client of a closed link")
	}
	cli, err := newClient(l.Endpoints(), l.DialOptions()...)
	if err != nil {
		return nil, err
	}
	l.clients = append(l.clients, cli)
	return cli, nil
}

// Cut resets all connections, with the loss of all that is under way or held, and resets new ones as soon as they are
// made. When it returns nothing passes any more.
func (l *Link) Cut() {
	l.network.update(func(f *networkFaults) { f.cut = true })
	for _, p := range l.proxies {
		p.reset()
	}
}

// BlackHole stops all bytes, both ways, as when packets are dropped: connections stay open, new ones are accepted, but
// nothing arrives. When it returns nothing passes any more. As TCP would retransmit them, the bytes are not lost: after
// Heal they arrive, in order, requests whose callers gave up long ago among them.
func (l *Link) BlackHole() { l.hold(requests, replies) }

// BlackHoleReplies is BlackHole in one direction: requests arrive, and are carried out, but no answers come back.
func (l *Link) BlackHoleReplies() { l.hold(replies) }

func (l *Link) hold(directions ...int) {
	l.network.update(func(f *networkFaults) {
		for _, d := range directions {
			f.held[d] = true
		}
	})
	for _, p := range l.proxies {
		p.settle()
	}
}

// Delay makes everything take d longer, in each direction: an RPC takes 2d longer. It does not reorder, and does not limit
// throughput.
func (l *Link) Delay(d time.Duration) {
	l.network.update(func(f *networkFaults) { f.delay = d })
}

// Heal ends all faults and forgets those that were ordered but have not happened yet, with the exception of Hold, which is
// for [Held.Deliver] to end. What was held arrives.
func (l *Link) Heal() {
	l.rpcs.heal()
	l.network.update(func(f *networkFaults) { *f = networkFaults{} })
}
