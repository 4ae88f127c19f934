//go:build linux

package robustness

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// An rpcTrace records the latest RPCs of one client, to explain a slow Lock.
type rpcTrace struct {
	mu    sync.Mutex // protects what follows
	calls []*rpcCall
}

type rpcCall struct {
	method      string
	began, done time.Time
	peer        string
	err         error
}

const tracedCalls = 400

func (tr *rpcTrace) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(
			ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			var to peer.Peer
			done := tr.begin(path.Base(method))
			err := invoke(ctx, method, req, reply, cc, append(opts, grpc.Peer(&to))...)
			done(to, err)
			return err
		}),
		grpc.WithChainStreamInterceptor(func(
			ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
			open grpc.Streamer, opts ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			done := tr.begin("stream " + path.Base(method))
			s, err := open(ctx, desc, cc, method, opts...)
			var to peer.Peer
			if err == nil {
				if p, ok := peer.FromContext(s.Context()); ok {
					to = *p
				}
			}
			done(to, err)
			return s, err
		}),
	}
}

func (tr *rpcTrace) begin(method string) func(peer.Peer, error) {
	c := &rpcCall{method: method, began: time.Now()}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.calls = append(tr.calls, c)
	if len(tr.calls) > tracedCalls {
		tr.calls = tr.calls[len(tr.calls)-tracedCalls:]
	}
	return func(to peer.Peer, err error) {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		c.done, c.err = time.Now(), err
		if to.Addr != nil {
			c.peer = to.Addr.String()
		}
	}
}

// since describes the RPCs that were in flight at began or started later.
func (tr *rpcTrace) since(began time.Time) string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	var s strings.Builder
	for _, c := range tr.calls {
		if !c.done.IsZero() && c.done.Before(began) {
			continue
		}
		fmt.Fprintf(&s, "\n%10v %s", c.began.Sub(began).Round(time.Millisecond), c.method)
		if c.done.IsZero() {
			s.WriteString(" open")
			continue
		}
		fmt.Fprintf(&s, " took %v by %s: %v", c.done.Sub(c.began).Round(time.Millisecond), c.peer, c.err)
	}
	return s.String()
}
