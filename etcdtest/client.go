package etcdtest

import (
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// access is what a Server and a Cluster have in common: a store that is reached at some endpoints.
type access struct {
	endpoints []string

	mu        sync.Mutex // protects what follows
	own       *clientv3.Client
	recorders []*Recorder
}

// Endpoints returns the addresses for [clientv3.Config], as host:port.
func (a *access) Endpoints() []string { return slices.Clone(a.endpoints) }

// Client returns a new client, as [clientv3.New] makes it but for two things: it logs nothing, and after it has failed to
// connect it tries again within 100 ms, where gRPC would wait longer each time, up to two minutes. It is closed when the
// test ends.
func (a *access) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	cli, err := a.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cli.Close() })
	return cli
}

// NewClient returns a new client like that of Client. The caller must close it.
func (a *access) NewClient() (*clientv3.Client, error) { return newClient(a.endpoints) }

func newClient(endpoints []string, opts ...grpc.DialOption) (*clientv3.Client, error) {
	// Not ClientConn.ResetConnectBackoff when a fault has healed: it races with connections that come and go.
	opts = append(opts, grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 80 * time.Millisecond},
		MinConnectTimeout: 20 * time.Second, // gRPC's default
	}))
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialOptions: opts, Logger: zap.NewNop()})
}

// client returns the client that the helpers use.
func (a *access) client() (*clientv3.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.own != nil {
		return a.own, nil
	}
	cli, err := a.NewClient()
	if err != nil {
		return nil, err
	}
	a.own = cli
	return cli, nil
}

func (a *access) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.own == nil {
		return nil
	}
	err := a.own.Close()
	a.own = nil
	return err
}
