package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// ClientConfig returns settings of etcd's client that suit sessions. Add TLS, Username and Password;
// append to DialOptions. A session works with any client, but with etcd's defaults it recovers up to
// two minutes after an outage, and the client logs a lot. Changed are:
//
//   - DialTimeout 5 s bounds the login in clientv3.New, which otherwise waits forever.
//   - DialKeepAliveTime 10 s (gRPC's minimum) and DialKeepAliveTimeout 3 s: otherwise a half-open
//     connection is kept for a quarter of an hour. On Linux the 3 s also bound unacknowledged bytes.
//   - PermitWithoutStream false: etcd closes connections that ping while no request is in flight.
//   - Pauses between attempts to connect: 100 ms, growing to 2 s, with jitter. An attempt may take 5
//     s.
//   - MaxUnaryRetries 5, BackoffWaitBetween 50 ms, BackoffJitterFraction 0.5; after that the session
//     repeats.
//   - AutoSyncInterval 0: advertised addresses may not be reachable.
//   - Message sizes: 2 MiB to send, more than etcd accepts; no limit to receive.
//   - Logger zap.NewNop(). Set one to debug the client.
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

// NewClient is clientv3.New with an error that says why it failed: it Is etcderr.ErrNotConnected and
// has the reason, such as an untrusted certificate. The client's errors also say which certificate of cfg.TLS has
// expired, and that a server asks for one and there is none. Close the client after its sessions.
//
// clientv3.New connects in the background, and waits only to log in (Username and Password) or to ask
// for versions (RejectOldCluster). Otherwise the first call that waits, such as New, reports the
// reason.
//
// ctx and cfg.DialTimeout bound the call, cfg.Context the client's life. Until then the login is repeated while etcd
// changes its leader or cannot be reached. Other errors:
// rpctypes.ErrAuthFailed (wrong user or password), clientv3.ErrOldCluster, and *holdfast.ArgumentError
// for a cfg without Endpoints, or with a Username and no Password. No error contains the password.
func NewClient(ctx context.Context, cfg clientv3.Config) (*clientv3.Client, error) {
	switch {
	case ctx == nil:
		return nil, &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	case len(cfg.Endpoints) == 0:
		return nil, &holdfast.ArgumentError{Argument: "cfg.Endpoints", Reason: "is empty"}
	case cfg.Username != "" && cfg.Password == "":
		return nil, &holdfast.ArgumentError{Argument: "cfg.Password", Reason: "is empty, but there is a Username"}
	}
	life := cfg.Context
	if life == nil {
		life = context.Background()
	}
	life, cancel := context.WithCancel(life)
	start, shown := &startup{ctx: ctx}, &certificate{}
	cfg.Context = life
	if cfg.TLS != nil {
		cfg.TLS = shown.watch(cfg.TLS)
	}
	cfg.DialOptions = append(slices.Clip(cfg.DialOptions),
		grpc.WithChainUnaryInterceptor(start.intercept, shown.intercept))

	stop := context.AfterFunc(ctx, cancel)
	cli, err := clientv3.New(cfg)
	late := !stop()
	why := start.finish()
	if err == nil && !late {
		context.AfterFunc(cli.Ctx(), cancel) // releases life when the client is closed
		return cli, nil
	}
	cancel()
	if err == nil {
		_ = cli.Close() // its error is that of life, which is canceled
	}
	if late {
		err = retry.ContextErr(ctx)
	}
	if why != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		err = why
	}
	user := ""
	if cfg.Username != "" {
		user = " as user " + names.Quote(cfg.Username)
	}
	return nil, fmt.Errorf("holdfast: no client of etcd at %s%s: %w", quoteEndpoints(cfg.Endpoints), user, err)
}

// quoteEndpoints lists endpoints for a message, without what a URL may have before its host: a password.
func quoteEndpoints(endpoints []string) string {
	const most = 9
	var list []string
	for _, endpoint := range endpoints[:min(most, len(endpoints))] {
		list = append(list, names.Quote(withoutUser(endpoint)))
	}
	if len(endpoints) > most {
		list = append(list, "…")
	}
	return strings.Join(list, ", ")
}

// withoutUser is an endpoint without what a URL may have before its host.
func withoutUser(endpoint string) string {
	scheme, host, ok := strings.Cut(endpoint, "://")
	if !ok {
		scheme, host = "", endpoint
	}
	host = host[strings.LastIndexByte(host, '@')+1:]
	if ok {
		host = scheme + "://" + host
	}
	return host
}

// startup repeats the requests of clientv3.New, and finds out why they fail. Only an interceptor sees their connection:
// it is closed when New returns the error.
type startup struct {
	ctx context.Context // NewClient's

	mu       sync.Mutex // protects the fields below
	finished bool
	why      error
}

// authenticate is the login. Its constant in etcdserverpb is new in 3.7.
const authenticate = "/etcdserverpb.Auth/Authenticate"

// intercept repeats the login until its context ends, for up to DialTimeout. etcd's client gives up after
// MaxUnaryRetries, which are over before a cluster has elected another leader. Nothing else is repeated: explain asks
// the same connection.
func (s *startup) intercept(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	var refused error // the latest reply of etcd
	once := func(ctx context.Context) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		// gRPC's own timer may fire before that of ctx, and is no reply.
		if err != nil && ctx.Err() == nil && status.Code(err) != codes.DeadlineExceeded {
			refused = rpctypes.Error(err)
		}
		return err
	}
	if method != authenticate || s.isFinished() {
		err := once(ctx)
		if err != nil && ctx.Err() != nil {
			s.explain(ctx, cc, nil)
		}
		return err
	}
	err := backoff.Retry(ctx, backoff.Policy{}, once)
	if err == nil || ctx.Err() == nil {
		return err
	}
	s.explain(ctx, cc, refused)
	return status.FromContextError(ctx.Err()).Err()
}

func (s *startup) isFinished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.finished
}

// explain remembers why cc is not connected, or what etcd has replied, for the end of ctx or of NewClient's context,
// which canceled ctx.
func (s *startup) explain(ctx context.Context, cc *grpc.ClientConn, refused error) {
	if s.isFinished() {
		return
	}
	ended := retry.ContextErr(s.ctx)
	if ended == nil {
		ended = ctx.Err()
	}
	why := retry.WithConnection(cc, ended)
	if !errors.Is(why, etcderr.ErrNotConnected) {
		why = nil
		if refused != nil {
			why = fmt.Errorf("%w; last error: %w", ended, refused)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why == nil {
		s.why = why
	}
}

// finish ends the search, and returns the reason if there is one.
func (s *startup) finish() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = true
	return s.why
}
