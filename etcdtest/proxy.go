package etcdtest

import (
	"io"
	"maps"
	"net"
	"slices"
	"sync"
)

// A proxy listens on a port of its own, which it keeps until close, and carries the connections made to it on to a
// target, through a network that may have faults.
//
// The one in go.etcd.io/etcd/pkg/v3/proxy would not do: in a black hole it throws away the bytes that arrive, and lets
// later ones of the same connection through afterwards. TCP never does that. To HTTP/2 it is corruption, and what a test
// sees after healing is how gRPC gives up a broken connection. Here bytes are held and flow on.
type proxy struct {
	listener net.Listener
	arrive   arrival

	mu     sync.Mutex // protects what follows
	target string     // empty: there is none, connections are reset
	conns  map[*proxyConn]bool
	closed bool

	running sync.WaitGroup // the accept loop and the connections; close waits for them
}

// An arrival makes a new connection ready to be carried, and says through which network.
type arrival func(*net.TCPConn) (duplex, *network, error)

// through is the arrival of connections that all take the same network.
func through(n *network) arrival {
	return func(c *net.TCPConn) (duplex, *network, error) { return c, n, nil }
}

// A duplex is an end of a connection of which one direction can end before the other: TCP, and TLS over it.
type duplex interface {
	io.ReadWriter
	CloseWrite() error
}

func newProxy(arrive arrival, target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, arrive: arrive, target: target, conns: make(map[*proxyConn]bool)}
	p.running.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.running.Go(func() { p.serve(c.(*net.TCPConn)) })
	}
}

func (p *proxy) serve(client *net.TCPConn) {
	c := &proxyConn{client: client, done: make(chan struct{})}
	target := p.add(c)
	if target == "" {
		c.reset()
		return
	}
	p.carry(c, target)
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// add registers c and returns what to connect it to; empty: nothing.
func (p *proxy) add(c *proxyConn) (target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.target == "" {
		return ""
	}
	p.conns[c] = true
	return p.target
}

// carry is called with c registered. Whoever changes the network does that first and then looks at the connections: we
// see the change, or it sees c.
func (p *proxy) carry(c *proxyConn, target string) {
	client, network, err := p.arrive(c.client)
	if err != nil {
		c.reset()
		return
	}
	if now, _ := network.get(); now.cut {
		c.reset()
		return
	}
	c.serve(client, network, target)
}

// retarget resets all connections and carries further ones to target; if that is empty, resets them too.
func (p *proxy) retarget(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	p.reset()
}

// reset resets all connections.
func (p *proxy) reset() {
	for _, c := range p.open() {
		c.reset()
	}
}

// settle returns when every write that went by an earlier state of the network has ended.
func (p *proxy) settle() {
	for _, c := range p.open() {
		c.settle()
	}
}

func (p *proxy) open() []*proxyConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.conns))
}

func (p *proxy) close() error {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	p.mu.Unlock()
	if again {
		return nil
	}
	err := p.listener.Close()
	p.reset()
	p.running.Wait()
	return err
}

// A proxyConn is one connection through a proxy.
type proxyConn struct {
	client *net.TCPConn
	done   chan struct{} // closed by reset

	mu                sync.Mutex   // protects what follows and the closing of done
	server            *net.TCPConn // nil until connected
	requests, replies *pipe        // nil until its network is known; then they stay
}

// serve carries bytes between client, which is c.client or runs over it, and target, both ways, until both have ended or
// the connection is reset.
func (c *proxyConn) serve(client duplex, n *network, target string) {
	c.mu.Lock()
	c.requests, c.replies = newPipe(n, requests, c.done), newPipe(n, replies, c.done)
	c.mu.Unlock()
	conn, err := net.Dial("tcp", target)
	if err != nil {
		c.replies.waitOpen() // a refusal does not leave a black hole either
		c.reset()
		return
	}
	server := conn.(*net.TCPConn)
	if !c.connected(server) {
		server.Close()
		return
	}
	var readers, writers sync.WaitGroup
	readers.Go(func() { c.requests.read(client) })
	readers.Go(func() { c.replies.read(server) })
	writers.Go(func() { c.requests.write(server) })
	writers.Go(func() { c.replies.write(client) })
	writers.Wait()
	c.client.Close()
	server.Close()
	readers.Wait()
}

// connected reports whether the connection stands: it may have been reset meanwhile.
func (c *proxyConn) connected(server *net.TCPConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server = server
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// settle returns when every write that went by an earlier state of the network has ended.
func (c *proxyConn) settle() {
	c.mu.Lock()
	requests, replies := c.requests, c.replies
	c.mu.Unlock()
	if requests != nil {
		requests.settle()
		replies.settle()
	}
}

// reset ends the connection at once: both ends see "connection reset", and what was under way between them is lost.
func (c *proxyConn) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.done:
		return
	default:
	}
	close(c.done)
	for _, end := range []*net.TCPConn{c.client, c.server} {
		if end != nil {
			end.SetLinger(0)
			end.Close()
		}
	}
}
