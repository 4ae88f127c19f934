//go:build linux

package main

import (
	"errors"
	"io"
	"net"
	"sync"
)

// A balancer is one address in front of several, as a load balancer of TCP has it: each connection goes to the next of
// them, whether that serves or not.
type balancer struct {
	listener net.Listener
	behind   func() []string // the present addresses
	all      sync.WaitGroup

	mu     sync.Mutex // protects what follows
	open   map[net.Conn]bool
	closed bool
}

// balance returns a balancer on loopback.
func balance(behind func() []string) (*balancer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &balancer{listener: l, behind: behind, open: make(map[net.Conn]bool)}
	b.all.Go(b.accept)
	return b, nil
}

func (b *balancer) address() string { return b.listener.Addr().String() }

// close ends all connections, and returns when no goroutine is left.
func (b *balancer) close() error {
	err := b.listener.Close()
	b.mu.Lock()
	b.closed = true
	for conn := range b.open {
		err = errors.Join(err, conn.Close())
	}
	b.mu.Unlock()
	b.all.Wait()
	return err
}

func (b *balancer) accept() {
	for n := 0; ; n++ {
		client, err := b.listener.Accept()
		if err != nil {
			return // closed
		}
		to := b.behind()
		b.all.Go(func() { b.forward(client, to[n%len(to)]) })
	}
}

// forward carries one connection until either side ends.
func (b *balancer) forward(client net.Conn, address string) {
	server, err := net.Dial("tcp", address)
	if err != nil {
		_ = client.Close()
		return
	}
	if !b.keep(client, server) {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			b.end(client, server)
		})
	}
	both.Wait()
}

// keep notes the connections, or closes them if the balancer is closed.
func (b *balancer) keep(conns ...net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range conns {
		if b.closed {
			_ = conn.Close()
			continue
		}
		b.open[conn] = true
	}
	return !b.closed
}

// end closes connections, once each.
func (b *balancer) end(conns ...net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range conns {
		if b.open[conn] {
			_ = conn.Close()
			delete(b.open, conn)
		}
	}
}
