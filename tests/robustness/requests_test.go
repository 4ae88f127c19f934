package robustness

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// requests counts what the number of a link does not tell: how many of the messages on streams of watches ask for one,
// and how many requests were slow. A request is sent again only while it is unanswered for longer than slowReply, so as
// many as were slow may have been repeated, and no more.
type requests struct{ watches, slow atomic.Int64 }

const slowReply = 100 * time.Millisecond

// client returns a client of the link whose requests are counted.
func (r *requests) client(t *testing.T, link *etcdtest.Link) *clientv3.Client {
	t.Helper()
	cfg := session.ClientConfig(link.Endpoints()...)
	cfg.DialOptions = append(cfg.DialOptions, append(link.DialOptions(), r.option())...)
	return connectWith(t, cfg)
}

func (r *requests) option() grpc.DialOption { return grpc.WithStatsHandler(r) }

// unary is the context key of requests that have one reply.
type unary struct{}

func (*requests) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, unary{}, strings.HasPrefix(info.FullMethodName, "/etcdserverpb.KV/"))
}

func (r *requests) HandleRPC(ctx context.Context, what stats.RPCStats) {
	switch what := what.(type) {
	case *stats.OutPayload:
		if w, ok := what.Payload.(*pb.WatchRequest); ok && w.GetCreateRequest() != nil {
			r.watches.Add(1)
		}
	case *stats.End:
		if ctx.Value(unary{}) == true && what.EndTime.Sub(what.BeginTime) > slowReply {
			r.slow.Add(1)
		}
	}
}

func (*requests) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*requests) HandleConn(context.Context, stats.ConnStats)                       {}
