package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// network is a worker's way to etcd, which can fail.
type network struct {
	denied    atomic.Bool // etcd refuses each transaction, as for a role without permissions
	losesNext atomic.Bool // the reply to the next transaction

	mu    sync.Mutex // protects cut and conns
	cut   bool
	conns map[net.Conn]struct{}
}

func newNetwork() *network {
	return &network{conns: make(map[net.Conn]struct{})}
}

func (n *network) dialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithContextDialer(n.dial), grpc.WithChainUnaryInterceptor(n.intercept)}
}

var errCut = errors.New("the network is cut")

func (n *network) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut {
		return nil, errors.Join(errCut, conn.Close())
	}
	n.conns[conn] = struct{}{} // until the network is cut, even if it is closed before
	return conn, nil
}

// setCut closes all connections and refuses new ones, or heals the network.
func (n *network) setCut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
	for conn := range n.conns {
		if cut {
			_ = conn.Close() // an error says that it is closed
			delete(n.conns, conn)
		}
	}
}

func (n *network) intercept(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	if method != "/etcdserverpb.KV/Txn" {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	if n.denied.Load() {
		return status.Error(codes.PermissionDenied, "etcdserver: permission denied")
	}
	err := invoke(ctx, method, req, reply, cc, opts...)
	if err == nil && n.losesNext.CompareAndSwap(true, false) {
		return status.Error(codes.Unavailable, "the connection was lost before the reply")
	}
	return err
}
