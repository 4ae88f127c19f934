package grpcfence_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/grpcfence"
	"github.com/holdfast-go/holdfast/fencing/memfence"
	"github.com/holdfast-go/holdfast/internal/testkit/fencingtest"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

type journal = fencingtest.Journal

func TestMain(m *testing.M) { leak.Main(m) }

// holder is a fencing.Holder in a state that the test sets.
type holder struct {
	name  string
	token holdfast.Token

	mu  sync.Mutex // protects err
	err error
}

func (h *holder) Name() string             { return h.name }
func (h *holder) Token() holdfast.Token    { return h.token }
func (h *holder) Client() *clientv3.Client { return nil }
func (h *holder) Holding() []clientv3.Cmp  { return nil }

func (h *holder) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

func (h *holder) lose(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

// holding returns a context with a holder.
func holding(name string, token int64) context.Context {
	return fencing.NewContext(context.Background(), &holder{name: name, token: holdfast.Token(token)})
}

// service has the methods Put, whose request names the resource, and Write, a stream of
// strings in both directions. It records the claims of all effects.
type service struct {
	put func(ctx context.Context, x string) error // nil: succeeds

	mu     sync.Mutex // protects the following fields
	landed []fencing.Claim
	conns  []net.Conn
}

// cut ends all connections to the service.
func (s *service) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.conns {
		conn.Close()
	}
	s.conns = nil
}

// accepting notes the connections of a service.
type accepting struct {
	net.Listener
	s *service
}

func (a accepting) Accept() (net.Conn, error) {
	conn, err := a.Listener.Accept()
	if err == nil {
		a.s.mu.Lock()
		defer a.s.mu.Unlock()
		a.s.conns = append(a.s.conns, conn)
	}
	return conn, err
}

func (s *service) land(ctx context.Context) {
	c, _ := fencing.ClaimFromContext(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.landed = append(s.landed, c)
}

func (s *service) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.landed)
}

var desc = grpc.ServiceDesc{
	ServiceName: "test.Accounts",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Put",
		Handler: func(srv any, ctx context.Context, dec func(any) error, in grpc.UnaryServerInterceptor) (any, error) {
			req := new(wrapperspb.StringValue)
			if err := dec(req); err != nil {
				return nil, err
			}
			handler := func(ctx context.Context, req any) (any, error) {
				s := srv.(*service)
				s.land(ctx)
				if s.put != nil {
					if err := s.put(ctx, req.(*wrapperspb.StringValue).Value); err != nil {
						return nil, err
					}
				}
				return req, nil
			}
			if in == nil {
				return handler(ctx, req)
			}
			return in(ctx, req, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/test.Accounts/Put"}, handler)
		},
	}},
	Streams: []grpc.StreamDesc{{
		StreamName: "Write", ServerStreams: true, ClientStreams: true,
		Handler: func(srv any, ss grpc.ServerStream) error {
			for {
				m := new(wrapperspb.StringValue)
				if err := ss.RecvMsg(m); errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
				srv.(*service).land(ss.Context())
				if err := ss.SendMsg(m); err != nil {
					return err
				}
			}
		},
	}},
}

// resourceOf guards "res/x" with lock "lock/x"; a stream is for "a".
func resourceOf(_ context.Context, method string, req any) (resource, name string, err error) {
	x := "a"
	if req != nil {
		x = req.(*wrapperspb.StringValue).Value
	}
	if x == "unknown" {
		return "", "", errors.New("secret: no such resource")
	}
	return "res/" + x, "lock/" + x, nil
}

// start serves svc behind g until the test ends, and returns how to connect to it.
func start(t testing.TB, svc *service, g *grpcfence.Server) (connect func(...grpc.DialOption) *grpc.ClientConn) {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(g.Unary()), grpc.ChainStreamInterceptor(g.Stream()),
		grpc.WaitForHandlers(true))
	srv.RegisterService(&desc, svc)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(accepting{l, svc}) }() // joined by the cleanup
	var conns []*grpc.ClientConn
	t.Cleanup(func() {
		for _, conn := range conns {
			conn.Close()
		}
		srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return func(opts ...grpc.DialOption) *grpc.ClientConn {
		t.Helper()
		opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
		conn, err := grpc.NewClient("passthrough:bufconn", opts...)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		return conn
	}
}

// serve returns a connection to svc behind g with the interceptors of c, and one without.
func serve(t testing.TB, svc *service, g *grpcfence.Server, c grpcfence.Client) (fenced, plain *grpc.ClientConn) {
	t.Helper()
	connect := start(t, svc, g)
	return connect(grpc.WithChainUnaryInterceptor(c.Unary()), grpc.WithChainStreamInterceptor(c.Stream())), connect()
}

func put(ctx context.Context, conn *grpc.ClientConn, x string) error {
	return conn.Invoke(ctx, "/test.Accounts/Put", wrapperspb.String(x), new(wrapperspb.StringValue))
}

func open(ctx context.Context, conn *grpc.ClientConn) (grpc.ClientStream, error) {
	return conn.NewStream(ctx, &desc.Streams[0], "/test.Accounts/Write")
}

// exchange sends a message and receives the answer.
func exchange(s grpc.ClientStream) error {
	if err := s.SendMsg(wrapperspb.String("x")); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return s.RecvMsg(new(wrapperspb.StringValue))
}

// once opens a stream, exchanges one message, and closes it.
func once(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := open(ctx, conn)
	if err != nil {
		return err
	}
	if err := exchange(s); err != nil {
		return err
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	if err := s.RecvMsg(new(wrapperspb.StringValue)); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// calls are the two kinds of call, for resource "res/a".
var calls = map[string]func(context.Context, *grpc.ClientConn) error{
	"unary":  func(ctx context.Context, c *grpc.ClientConn) error { return put(ctx, c, "a") },
	"stream": once,
}

// servers returns all three server halves, with a store each.
func servers(o grpcfence.Options) map[string]*grpcfence.Server {
	return map[string]*grpcfence.Server{
		"guard":   grpcfence.NewGuard(memfence.New(memfence.Options{}), resourceOf, o),
		"filter":  grpcfence.NewFilter(memfence.New(memfence.Options{}), resourceOf, o),
		"require": grpcfence.NewRequire(resourceOf, o),
	}
}

// transaction is a store that rolls back if its effect fails.
type transaction struct {
	commit     error
	left       error // joined to that of the effect; nil: "rolled back"
	rolledBack bool
}

func (x *transaction) Do(ctx context.Context, _ string, _ fencing.Claim, effect func(context.Context) error) error {
	if err := effect(ctx); err != nil {
		x.rolledBack = true
		return errors.Join(cmp.Or(x.left, errors.New("rolled back")), err)
	}
	return x.commit
}
