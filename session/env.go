package session

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// env is what stays the same as long as a session lives. All its parts have it.
type env struct {
	client    *clientv3.Client
	opts      Options // with the defaults
	telemetry *telemetry.Telemetry
	sender    *requests.Sender
	streams   *grpc.ClientConn // for watches of session keys; nil: the client's Watcher is used
	identity  layout.Identity
	ctx       context.Context  // until Close
	observer  func(lease.Step) // see lease.Observe
}

func newEnv(ctx context.Context, cli *clientv3.Client, o Options) *env {
	return &env{
		client: cli, opts: o, sender: requests.NewSender(cli, o.Retry), streams: streamConn(cli), identity: o.identity(),
		ctx: ctx, telemetry: telemetry.New(telemetry.Options(o.Telemetry)),
	}
}

func (o Options) identity() layout.Identity {
	if o.Anonymous {
		return layout.Identity{Owner: o.Owner}
	}
	host, _ := os.Hostname() // unknown is as good as empty here
	pid := os.Getpid()
	return layout.Identity{Owner: cmp.Or(o.Owner, fmt.Sprintf("%s:%d", host, pid)), Host: host, PID: pid}
}

// clientClosed reports whether the etcd client is closed.
func (e *env) clientClosed() bool { return e.client.Ctx().Err() != nil }

func (e *env) Client() *clientv3.Client { return e.client }

func (e *env) Namespace() string { return e.opts.Namespace }

func (e *env) Logger() *slog.Logger { return e.opts.Logger }

func (e *env) Telemetry() *telemetry.Telemetry { return e.telemetry }

func (e *env) Clock() func() time.Duration { return e.opts.Clock }

func (e *env) RetryPolicy() backoff.Policy { return e.opts.Retry }

func (e *env) Sender() *requests.Sender { return e.sender }

func (e *env) Identity() layout.Identity { return e.identity }

func (e *env) LockDelay() time.Duration { return e.opts.LockDelay }

func (e *env) TrailingSlash() bool { return e.opts.TrailingSlash }

func (e *env) EpochKey() string { return names.EpochKey(e.opts.Namespace) }

func (e *env) SessionKey(id clientv3.LeaseID) string { return names.SessionKey(e.opts.Namespace, id) }

func (e *env) Context() context.Context { return e.ctx }
