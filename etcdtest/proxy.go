package etcdtest

import (
	"io"
	"maps"
	"net"
	"slices"
	"sync"
)

// A proxy listens on its own port until close, and forwards connections to a target, through a network that may
// have faults.
//
// go.etcd.io/etcd/pkg/v3/proxy would not do: in a black hole it discards bytes and later forwards the rest of the
// connection. TCP never does that. HTTP/2 takes it for corruption, so after healing a test would see how gRPC gives up
// a broken connection. This proxy holds the bytes and forwards them later.
type proxy struct {
	listener net.Listener
	prepare  acceptFunc

	mu     sync.Mutex // protects target, conns, closed
	target string     // empty: connections are reset
	conns  map[*proxyConn]bool
	closed bool

	running sync.WaitGroup // the accept loop and the connections; joined by close
}

// An acceptFunc prepares a new connection for forwarding, and selects its network.
type acceptFunc func(*net.TCPConn) (duplex, *network, error)

// through accepts all connections as they are, into one network.
func through(n *network) acceptFunc {
	return func(c *net.TCPConn) (duplex, *network, error) { return c, n, nil }
}

// A duplex is a connection that can be closed for writing alone: TCP, and TLS over it.
type duplex interface {
	io.ReadWriter
	CloseWrite() error
}

func newProxy(prepare acceptFunc, target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, prepare: prepare, target: target, conns: make(map[*proxyConn]bool)}
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
	p.forward(c, target)
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// add registers c and returns its target. If that is empty, the connection must be reset.
func (p *proxy) add(c *proxyConn) (target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.target == "" {
		return ""
	}
	p.conns[c] = true
	return p.target
}

// forward forwards c, which is registered. A change of the network comes first and then looks at the registered
// connections: so either forward sees the change, or the change sees c.
func (p *proxy) forward(c *proxyConn, target string) {
	client, network, err := p.prepare(c.client)
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

// retarget resets all connections, and forwards new ones to target; if that is empty, it resets them, too.
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

// settle waits for all writes that may have begun before the network changed.
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

	mu                sync.Mutex   // protects the rest, and the closing of done
	server            *net.TCPConn // nil until connected
	requests, replies *pipe        // nil until the network is known, then constant
}

// serve forwards bytes between client, which is c.client or TLS over it, and target, until both directions have ended
// or the connection is reset.
func (c *proxyConn) serve(client duplex, n *network, target string) {
	c.mu.Lock()
	c.requests, c.replies = newPipe(n, requests, c.done), newPipe(n, replies, c.done)
	c.mu.Unlock()
	conn, err := net.Dial("tcp", target)
	if err != nil {
		c.replies.waitOpen() // a refusal must not escape from a black hole
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

// connected stores the server side. It returns false if the connection was reset in the meantime.
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

// settle waits for writes that may have begun before the network changed.
func (c *proxyConn) settle() {
	c.mu.Lock()
	requests, replies := c.requests, c.replies
	c.mu.Unlock()
	if requests != nil {
		requests.settle()
		replies.settle()
	}
}

// reset resets the connection: both ends see "connection reset", and bytes in flight are lost.
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
