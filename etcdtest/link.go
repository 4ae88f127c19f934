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

// A Link is a way to etcd that can fail, for one or a few clients. Its methods are safe for concurrent use. Faults add
// up; Heal ends all of them.
//
// Cut, BlackHole, BlackHoleReplies and Delay affect all connections to Endpoints, which are proxies on loopback in
// front of the members. LoseRequest, LoseReply, Hold and Stall are faults of single RPCs: they affect clients made by
// Client and NewClient, or with DialOptions.
type Link struct {
	network network
	rpcs    *rpcs
	proxies []*proxy
	closing context.CancelFunc

	mu      sync.Mutex // protects client, clients
	client  *clientv3.Client
	clients []*clientv3.Client // all of them, client included
}

// Link returns a new Link without faults, and closes it when the test ends. The Link to a Cluster has an address for
// each of its present members.
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

// NewLink is Link for programs and examples, which have no [testing.TB]. The caller must Close it.
func (a *access) NewLink() (*Link, error) {
	life, closing := context.WithCancel(context.Background())
	l := &Link{rpcs: newRPCs(life), closing: closing}
	for _, endpoint := range a.Endpoints() {
		p, err := newProxy(through(&l.network), endpoint)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l.proxies = append(l.proxies, p)
	}
	return l, nil
}

// Close closes the link and its clients. Requests that it still holds are lost.
func (l *Link) Close() error {
	l.closing()
	l.mu.Lock()
	clients := l.clients
	l.clients = nil
	l.mu.Unlock()
	for _, cli := range clients {
		cli.Close() // its error only says that the test has closed it
	}
	l.rpcs.close()
	var errs []error
	for _, p := range l.proxies {
		errs = append(errs, p.close())
	}
	return errors.Join(errs...)
}

// Endpoints returns the addresses of the link, for [clientv3.Config].
func (l *Link) Endpoints() []string {
	var addrs []string
	for _, p := range l.proxies {
		addrs = append(addrs, p.addr())
	}
	return addrs
}

// DialOptions returns options for a client that the service under test makes: its RPCs then count and have the faults
// of the link.
//
//	clientv3.Config{Endpoints: link.Endpoints(), DialOptions: link.DialOptions()}
func (l *Link) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(l.rpcs.unary),
		grpc.WithChainStreamInterceptor(l.rpcs.stream),
	}
}

// Client returns the client of the link, always the same one, like those of Server.Client; Close closes it. Client
// panics if the link is closed.
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

// NewClient returns another client of the link. Close closes it, too.
func (l *Link) NewClient() (*clientv3.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newClient()
}

func (l *Link) newClient() (*clientv3.Client, error) {
	if l.rpcs.life.Err() != nil {
		return nil, errors.New("etcdtest: the link is closed")
	}
	cli, err := newClient(l.Endpoints(), l.DialOptions()...)
	if err != nil {
		return nil, err
	}
	l.clients = append(l.clients, cli)
	return cli, nil
}

// Cut resets all connections, and new ones as soon as they are made. Bytes in flight and held requests are lost. When
// Cut returns, no byte passes.
func (l *Link) Cut() {
	l.network.update(func(f *networkFaults) { f.cut = true })
	for _, p := range l.proxies {
		p.reset()
	}
}

// BlackHole holds all bytes in both directions, as if packets were dropped; connections stay open, new ones are
// accepted. When it returns, no byte passes. The bytes arrive after Heal, in order, even requests whose callers gave
// up.
func (l *Link) BlackHole() { l.hold(requests, replies) }

// BlackHoleReplies holds the bytes of replies; requests are carried out.
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

// Delay delays all bytes by d in each direction.
func (l *Link) Delay(d time.Duration) {
	l.network.update(func(f *networkFaults) { f.delay = d })
}

// Heal ends all faults, but not a Hold, and cancels those that have not happened yet. Bytes and requests that were held
// arrive.
func (l *Link) Heal() {
	l.rpcs.heal()
	l.network.update(func(f *networkFaults) { *f = networkFaults{} })
}
