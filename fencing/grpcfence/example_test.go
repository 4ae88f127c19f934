package grpcfence_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"

	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/grpcfence"
	"github.com/holdfast-go/holdfast/fencing/memfence"
)

// accounts stands for your service. The health service's Check is its method: it adds
// 100 to the account that the request names. The handler reads, computes and writes; the
// client says only what to change.
type accounts struct {
	grpc_health_v1.UnimplementedHealthServer
	balances *sync.Map
}

func (a accounts) Check(
	ctx context.Context, req *grpc_health_v1.HealthCheckRequest,
) (*grpc_health_v1.HealthCheckResponse, error) {
	balance, _ := a.balances.LoadOrStore(req.Service, 0)
	a.balances.Store(req.Service, balance.(int)+100)
	c, _ := fencing.ClaimFromContext(ctx)
	fmt.Println("server:", balance.(int)+100, "after", c)
	return &grpc_health_v1.HealthCheckResponse{}, nil
}

func Example() {
	resourceOf := func(_ context.Context, _ string, req any) (resource, name string, err error) {
		id := req.(*grpc_health_v1.HealthCheckRequest).Service
		return "account/" + id, "accounts/" + id, nil
	}
	opts := grpcfence.Options{Auditor: audit.Func(func(context.Context, audit.Record) {})} // default: it logs
	guard := grpcfence.NewGuard(memfence.New(memfence.Options{}), resourceOf, opts)
	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(guard.Unary()), grpc.WaitForHandlers(true))
	grpc_health_v1.RegisterHealthServer(srv, accounts{balances: new(sync.Map)})
	l := bufconn.Listen(1 << 16)
	served := make(chan error)
	go func() { served <- srv.Serve(l) }() // joined by the deferred receive
	defer func() { srv.Stop(); <-served }()

	conn, err := grpc.NewClient("passthrough:example",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(grpcfence.Client{}.Unary()))
	if err != nil {
		panic(err)
	}
	defer conn.Close()

	// Inside locker.Mutex.Do the context carries the lock.
	write := func(lk fencing.Holder) error {
		ctx := fencing.NewContext(context.Background(), lk)
		_, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "42"})
		return err
	}
	first, second := &holder{name: "accounts/42", token: 1731}, &holder{name: "accounts/42", token: 1802}
	fmt.Println("first: ", write(first))
	fmt.Println("second:", write(second))
	fmt.Println("first: stale:", errors.Is(write(first), fencing.ErrStale))
	// Output:
	// server: 100 after token 1731 of "accounts/42"
	// first:  <nil>
	// server: 200 after token 1802 of "accounts/42"
	// second: <nil>
	// first: stale: true
}
