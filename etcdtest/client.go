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

// access is what a Server and a Cluster have in common: a store behind some endpoints.
type access struct {
	mu        sync.Mutex // protects the rest
	endpoints []string
	own       *clientv3.Client // of the helpers; nil until needed
	recorders []*Recorder      // those that run
}

// Endpoints returns the addresses for [clientv3.Config], as host:port.
func (a *access) Endpoints() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.endpoints)
}

// setEndpoints is called when the members have changed. It takes the clients of this package along.
func (a *access) setEndpoints(endpoints []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.endpoints = endpoints
	if a.own != nil {
		a.own.SetEndpoints(endpoints...)
	}
	for _, r := range a.recorders {
		r.client.SetEndpoints(endpoints...)
	}
}

// Client returns a new client, and closes it when the test ends. It is as clientv3.New makes it, except that it does
// not log, and reconnects within 100 ms.
func (a *access) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	cli, err := a.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cli.Close() })
	return cli
}

// NewClient returns a new client, like Client. The caller must close it.
func (a *access) NewClient() (*clientv3.Client, error) { return newClient(a.Endpoints()) }

func newClient(endpoints []string, opts ...grpc.DialOption) (*clientv3.Client, error) {
	// ClientConn.ResetConnectBackoff when a fault ends would not do: it races with connections that come and go.
	opts = append(opts, grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{
			BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 80 * time.Millisecond,
		},
		MinConnectTimeout: 20 * time.Second, // gRPC's default
	}))
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialOptions: opts, Logger: zap.NewNop()})
}

// client returns the client of the helpers.
func (a *access) client() (*clientv3.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.own != nil {
		return a.own, nil
	}
	cli, err := newClient(a.endpoints)
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
