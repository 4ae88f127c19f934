package grpcfence_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/grpcfence"
	"github.com/holdfast-go/holdfast/internal/fence"
)

// A client that repeats UNAVAILABLE, as many are configured to, over a counter
// whose increment is carried out and not answered.
func TestIncrementOfUnknownOutcomeIsNotRepeatedByTheClient(t *testing.T) {
	unanswered := fmt.Errorf("commit: %w", holdfast.ErrOutcomeUnknown)
	for name, build := range map[string]func(counter *atomic.Int64) (*grpcfence.Server, *service){
		"ToStatus": func(counter *atomic.Int64) (*grpcfence.Server, *service) {
			return grpcfence.NewRequire(resourceOf), &service{put: func(context.Context, string) error {
				counter.Add(1)
				return grpcfence.ToStatus(unanswered)
			}}
		},
		"ToStatus of an error it does not know": func(counter *atomic.Int64) (*grpcfence.Server, *service) {
			return grpcfence.NewRequire(resourceOf), &service{put: func(context.Context, string) error {
				counter.Add(1)
				return grpcfence.ToStatus(errors.New("driver: bad connection"))
			}}
		},
		"NewGuard": func(counter *atomic.Int64) (*grpcfence.Server, *service) {
			return grpcfence.NewGuard(&transaction{commit: unanswered}, resourceOf), &service{put: func(context.Context, string) error {
				counter.Add(1)
				return nil
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var counter atomic.Int64
			g, svc := build(&counter)
			err := put(holding("lock/a", 5), repeating(t, svc, g), "a")
			if n := counter.Load(); n != 1 {
				t.Errorf("one call made the counter %d", n)
			}
			if status.Code(err) != codes.Unknown || !errors.Is(err, holdfast.ErrOutcomeUnknown) || errors.Is(err, fencing.ErrNotDone) {
				t.Errorf("answered %v", err)
			}
		})
	}
}

// What is known to have failed before the effect is repeated, and carried out once.
func TestCallThatWasNotCarriedOutIsRepeatedByTheClient(t *testing.T) {
	var calls atomic.Int64
	svc := &service{put: func(context.Context, string) error {
		if calls.Add(1) == 1 {
			return grpcfence.ToStatus(fencing.NotDone(errors.New("etcd does not answer")))
		}
		return nil
	}}
	if err := put(holding("lock/a", 5), repeating(t, svc, grpcfence.NewRequire(resourceOf)), "a"); err != nil || calls.Load() != 2 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
}

// repeating returns a connection that repeats UNAVAILABLE up to four times.
func repeating(t *testing.T, svc *service, g *grpcfence.Server) *grpc.ClientConn {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(g.Unary()), grpc.WaitForHandlers(true))
	srv.RegisterService(&desc, svc)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }() // joined by the cleanup
	conn, err := grpc.NewClient("passthrough:bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithChainUnaryInterceptor(grpcfence.Client{}.Unary()),
		grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5,
			"initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return conn
}

// A refusal that the store has recorded is not recorded again by the guard.
func TestRefusalIsRecordedOnceAndNamesThePeer(t *testing.T) {
	j := &journal{}
	conn, _ := serve(t, &service{}, grpcfence.NewGuard(recording{fencing.NewMemoryStore(nil), j}, resourceOf, &grpcfence.Options{Auditor: j}), grpcfence.Client{})
	for how, call := range both {
		if err := call(holding("lock/a", 9), conn); err != nil {
			t.Fatal(err)
		}
		if err := call(holding("lock/a", 5), conn); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("%s: %v", how, err)
		}
		if got := j.take(); len(got) != 1 || got[0].Holder == "" || !strings.Contains(got[0].Err.Error(), "token 5") {
			t.Errorf("%s: recorded %+v", how, got)
		}
	}
}

// recording is a store that has an auditor of its own, as sqlfence's has.
type recording struct {
	fencing.Store
	a audit.Auditor
}

func (r recording) Do(ctx context.Context, resource string, c fencing.Claim, effect func(context.Context) error) error {
	err := r.Store.Do(ctx, resource, c, effect)
	if err != nil {
		fence.AuditRefusal(ctx, r.a, resource, c, "", err)
	}
	return err
}
