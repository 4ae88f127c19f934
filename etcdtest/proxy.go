package etcdtest

import (
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
	network  *network

	mu     sync.Mutex // protects what follows
	target string     // empty: there is none, connections are reset
	conns  map[*proxyConn]bool
	closed bool

	running sync.WaitGroup // the accept loop and the connections; close waits for them
}

func newProxy(n *network, target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, network: n, target: target, conns: make(map[*proxyConn]bool)}
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
	c := newProxyConn(p.network, client)
	target := p.add(c)
	if target == "" {
		c.reset()
		return
	}
	c.serve(target)
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// add registers c and returns what to connect it to; empty: nothing.
func (p *proxy) add(c *proxyConn) (target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Whoever cuts the network changes that first and then resets the connections: we see the one or the other sees c.
	if now, _ := p.network.get(); now.cut || p.closed {
		return ""
	}
	if p.target != "" {
		p.conns[c] = true
	}
	return p.target
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
		c.requests.settle()
		c.replies.settle()
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
	network           *network
	client            *net.TCPConn
	requests, replies *pipe

	mu     sync.Mutex    // protects server and the closing of done
	server *net.TCPConn  // nil until connected
	done   chan struct{} // closed by reset
}

func newProxyConn(n *network, client *net.TCPConn) *proxyConn {
	done := make(chan struct{})
	return &proxyConn{
		network:  n,
		client:   client,
		requests: newPipe(n, requests, done),
		replies:  newPipe(n, replies, done),
		done:     done,
	}
}

// serve carries bytes both ways until both have ended or the connection is reset.
func (c *proxyConn) serve(target string) {
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
	readers.Go(func() { c.requests.read(c.client) })
	readers.Go(func() { c.replies.read(server) })
	writers.Go(func() { c.requests.write(server) })
	writers.Go(func() { c.replies.write(c.client) })
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
