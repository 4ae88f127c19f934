package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// ClientConfig returns settings of etcd's client for sessions. Add TLS, Username and Password; append to DialOptions. A
// session works with any client, but with etcd's defaults it recovers up to two minutes after an outage, and the client
// logs a lot. ClientConfig sets:
//
//   - DialTimeout 5 s bounds the login in clientv3.New, which otherwise waits forever.
//   - DialKeepAliveTime 10 s (gRPC's minimum) and DialKeepAliveTimeout 3 s: otherwise a half-open connection lasts for
//     a quarter of an hour. On Linux the 3 s also bound unacknowledged bytes.
//   - Pauses between attempts to connect: 100 ms, growing to 2 s, with jitter. An attempt may take 5 s.
//   - MaxUnaryRetries 5, BackoffWaitBetween 50 ms, BackoffJitterFraction 0.5; after that the session repeats.
//   - Logger zap.NewNop(). Set one to debug the client.
//
// It leaves these as etcd's client has them:
//
//   - PermitWithoutStream false: etcd closes connections that ping while no request is in flight.
//   - AutoSyncInterval 0: advertised addresses may not be reachable.
//   - Message sizes: 2 MiB to send, more than etcd accepts; no limit to receive.
func ClientConfig(endpoints ...string) clientv3.Config {
	return clientv3.Config{
		Endpoints:             endpoints,
		DialTimeout:           5 * time.Second,
		DialKeepAliveTime:     10 * time.Second,
		DialKeepAliveTimeout:  3 * time.Second,
		MaxUnaryRetries:       5,
		BackoffWaitBetween:    50 * time.Millisecond,
		BackoffJitterFraction: 0.5,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: grpcbackoff.Config{
				BaseDelay:  100 * time.Millisecond,
				Multiplier: 1.6,
				Jitter:     0.2,
				MaxDelay:   2 * time.Second,
			},
			MinConnectTimeout: 5 * time.Second,
		})},
		Logger: zap.NewNop(),
	}
}

// NewClient is clientv3.New with an error that says why it failed: it Is etcderr.ErrNotConnected and has the reason,
// such as an untrusted certificate. Close the client after its sessions.
//
// clientv3.New connects in the background. It waits only to log in (Username and Password) or to ask for versions
// (RejectOldCluster). Without these the first call that waits, such as New, reports the reason.
//
// ctx and cfg.DialTimeout bound the call, cfg.Context the client's life. NewClient logs in again while etcd changes its
// leader. Other errors: rpctypes.ErrAuthFailed (wrong user or password), clientv3.ErrOldCluster, and
// *holdfast.ArgumentError for a cfg without Endpoints, or with a Username and no Password. No error contains the
// password.
func NewClient(ctx context.Context, cfg clientv3.Config) (*clientv3.Client, error) {
	switch {
	case ctx == nil:
		return nil, &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	case len(cfg.Endpoints) == 0:
		return nil, &holdfast.ArgumentError{Argument: "cfg.Endpoints", Reason: "is empty"}
	case cfg.Username != "" && cfg.Password == "":
		return nil, &holdfast.ArgumentError{Argument: "cfg.Password", Reason: "is empty, but there is a Username"}
	}
	if cfg.Context == nil {
		cfg.Context = context.Background()
	}
	life, end := context.WithCancel(cfg.Context)
	cfg.Context = life
	limit := ctx
	if cfg.DialTimeout > 0 {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeout(ctx, cfg.DialTimeout)
		defer cancel()
	}
	tried := attempt{limit: limit}
	cfg.DialOptions = append(slices.Clip(cfg.DialOptions), grpc.WithChainUnaryInterceptor(tried.intercept))

	stop := context.AfterFunc(limit, end) // clientv3.New takes a context for the client's life alone
	var cli *clientv3.Client
	err := backoff.Retry(limit, backoff.Policy{}, func(ctx context.Context) (err error) {
		// etcd's client gives up a login after MaxUnaryRetries, before a cluster has elected another leader.
		if cli, err = clientv3.New(cfg); err != nil && ctx.Err() != nil {
			return ctx.Err() // err says the same, and would hide the reply to the attempt before
		}
		return err
	})
	tried.over.Store(true)
	if err == nil && stop() {
		context.AfterFunc(cli.Ctx(), end) // releases life when the client is closed
		return cli, nil
	}
	end()
	if err == nil {
		_ = cli.Close() // its error says that life is canceled
		err = retry.ContextErr(limit)
	}
	if why := tried.why.Load(); why != nil {
		err = *why
	}
	user := ""
	if cfg.Username != "" {
		user = " as user " + names.Quote(cfg.Username)
	}
	return nil, fmt.Errorf("holdfast: no client of etcd at %s%s: %w", quoteEndpoints(cfg.Endpoints), user, err)
}

// attempt finds out why clientv3.New does not connect. Only an interceptor sees the connection: New closes it before it
// returns its error.
type attempt struct {
	limit context.Context // of NewClient
	over  atomic.Bool     // NewClient has its result
	why   atomic.Pointer[error]
}

func (a *attempt) intercept(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	if err == nil || ctx.Err() == nil || a.over.Load() {
		return err
	}
	ended := retry.ContextErr(a.limit) // with its cause
	if ended == nil {
		ended = ctx.Err()
	}
	if why := retry.WithConnection(cc, ended); errors.Is(why, etcderr.ErrNotConnected) {
		a.why.CompareAndSwap(nil, &why)
	}
	return err
}

// quoteEndpoints lists endpoints for a message, without their passwords.
func quoteEndpoints(endpoints []string) string {
	var list []string
	for _, endpoint := range endpoints {
		list = append(list, names.Quote(withoutUser(endpoint)))
	}
	return strings.Join(list, ", ")
}

// withoutUser cuts off what a URL may have before its host: a user and a password.
func withoutUser(endpoint string) string {
	scheme, host, ok := strings.Cut(endpoint, "://")
	if !ok {
		return endpoint[strings.LastIndexByte(endpoint, '@')+1:]
	}
	return scheme + "://" + host[strings.LastIndexByte(host, '@')+1:]
}
