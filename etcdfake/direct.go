package etcdfake

import (
	"context"
	"io"
	"reflect"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// DialOptions let a client of clientv3.New send to the link without a connection: each request, and each new stream of
// pb.WatchClient, goes to the next member, as with an endpoint for each. Such a client has an ActiveConnection, and
// costs less than one of Serve. What was said there of its Watcher applies. Other streams are not served: a renewal is
// one request with one reply.
func (l *Link) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(l.invoke), grpc.WithChainStreamInterceptor(l.stream)}
}

// invoke serves a request.
func (l *Link) invoke(
	ctx context.Context, method string, r, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption,
) error {
	resp, err := l.serve(ctx, method, r)
	if err != nil {
		return err
	}
	reflect.ValueOf(reply).Elem().Set(reflect.ValueOf(resp).Elem())
	return nil
}

func (l *Link) serve(ctx context.Context, method string, r any) (any, error) {
	s := l.srv
	switch r := r.(type) {
	case *pb.RangeRequest:
		return answer(ctx, l, nil, "Range", r, !r.Serializable, s.serveRange)
	case *pb.PutRequest:
		return answer(ctx, l, nil, "Put", r, true, s.servePut)
	case *pb.DeleteRangeRequest:
		return answer(ctx, l, nil, "DeleteRange", r, true, s.serveDelete)
	case *pb.TxnRequest:
		return answer(ctx, l, nil, "Txn", r, true, s.serveTxn)
	case *pb.CompactionRequest:
		return answer(ctx, l, nil, "Compact", r, true, s.serveCompact)
	case *pb.LeaseGrantRequest:
		return answer(ctx, l, nil, "LeaseGrant", r, true, s.serveGrant)
	case *pb.LeaseRevokeRequest:
		return answer(ctx, l, nil, "LeaseRevoke", r, true, s.serveRevoke)
	case *pb.LeaseTimeToLiveRequest:
		return answer(ctx, l, nil, "LeaseTimeToLive", r, true, s.serveTimeToLive)
	case *pb.LeaseLeasesRequest:
		return answer(ctx, l, nil, "LeaseLeases", r, false, s.serveLeases)
	case *pb.LeaseKeepAliveRequest:
		return answer(ctx, l, nil, "LeaseKeepAlive", r, true, s.serveRenewal)
	case *pb.MemberListRequest:
		return answer(ctx, l, nil, "MemberList", r, r.Linearizable, s.serveMembers)
	}
	return nil, status.Error(codes.Unimplemented, "etcdfake: "+method)
}

// stream opens a stream of watches.
func (l *Link) stream(
	ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, method string, _ grpc.Streamer, _ ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if method != "/etcdserverpb.Watch/Watch" { // its constant in etcdserverpb is new in 3.7
		return nil, status.Error(codes.Unimplemented, "etcdfake: "+method)
	}
	at, end := context.WithCancel(ctx) // on the member
	st := &direct{
		ctx: ctx, sent: newMailbox[*pb.WatchRequest](), told: newMailbox[*pb.WatchResponse](), ended: make(chan struct{}),
	}
	go func() { // ends with ctx or the link
		defer close(st.ended)
		defer end()
		st.err = (&watchServer{link: l}).Watch(&served{ctx: at, to: st})
	}()
	return st, nil
}

// direct is a stream of watches on the side of the client.
type direct struct {
	grpc.ClientStream // nil: clients call only the methods below
	ctx               context.Context
	sent              *mailbox[*pb.WatchRequest]
	told              *mailbox[*pb.WatchResponse]
	ended             chan struct{}
	err               error // why it has ended
}

func (d *direct) Context() context.Context { return d.ctx }

func (d *direct) SendMsg(m any) error {
	if isClosed(d.ended) {
		return io.EOF
	}
	d.sent.put(m.(*pb.WatchRequest))
	return nil
}

func (d *direct) RecvMsg(m any) error {
	for {
		ended := isClosed(d.ended) // what was told before comes first
		if resp, ok := d.told.take(); ok {
			reflect.ValueOf(m).Elem().Set(reflect.ValueOf(resp).Elem())
			return nil
		}
		if ended {
			return d.err
		}
		select {
		case <-d.told.ready:
		case <-d.ended:
		}
	}
}

// served is the same stream on the side of the member.
type served struct {
	pb.Watch_WatchServer // nil: watchServer calls only the methods below
	ctx                  context.Context
	to                   *direct
}

func (s *served) Context() context.Context { return s.ctx }

func (s *served) Send(resp *pb.WatchResponse) error {
	s.to.told.put(resp)
	return nil
}

func (s *served) Recv() (*pb.WatchRequest, error) {
	for {
		if r, ok := s.to.sent.take(); ok {
			return r, nil
		}
		select {
		case <-s.to.sent.ready:
		case <-s.to.ended:
			return nil, io.EOF
		}
	}
}
