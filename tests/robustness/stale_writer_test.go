package robustness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/fencing/grpcfence"
	"github.com/holdfast-go/holdfast/fencing/httpfence"
	"github.com/holdfast-go/holdfast/fencing/memfence"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/tests/internal/stalewriter"
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
)

func writeUntilRefused(
	ctx context.Context, _ string, j stalewriter.Job, parent *child.Parent[stalewriter.Event],
) error {
	return stalewriter.Work(ctx, j, parent, openWay)
}

// The ways of writing.
const (
	byWriter = "etcdfence.Writer"
	byMarks  = "etcdfence.Marks"
	byHTTP   = "httpfence"
	byGRPC   = "grpcfence"
)

func openWay(_ context.Context, j stalewriter.Job, cli *clientv3.Client) (stalewriter.Write, error) {
	switch j.Way {
	case byWriter:
		return func(ctx context.Context, h fencing.Holder) error {
			put, err := nextCount(ctx, cli, j.Name, h)
			if err == nil {
				w := etcdfence.NewWriter(h).With(etcdfence.WriterOptions{Auditor: testkit.Unrecorded})
				_, err = w.Txn(ctx).Then(put).Commit()
			}
			return err
		}, nil
	case byMarks:
		marks, err := etcdfence.NewMarks(cli, etcdfence.MarksOptions{})
		return func(ctx context.Context, h fencing.Holder) error {
			c, err := fencing.Present(h)
			if err == nil {
				err = marks.Admit(ctx, j.Name, c) // before the read
			}
			if err != nil {
				return err
			}
			put, err := nextCount(ctx, cli, j.Name, h)
			if err == nil {
				_, err = marks.Commit(ctx, j.Name, c, put)
			}
			return err
		}, err
	case byHTTP:
		client := &http.Client{Transport: &httpfence.Transport{}}
		return func(ctx context.Context, _ fencing.Holder) error {
			req, err := http.NewRequestWithContext(ctx, "POST", j.Address, strings.NewReader("+1"))
			if err != nil {
				return err
			}
			resp, err := client.Do(req)
			if err != nil {
				return fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
			}
			defer resp.Body.Close()
			return httpfence.CheckResponse(resp)
		}, nil
	}
	conn, err := grpc.NewClient("passthrough:///"+j.Address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(grpcfence.Client{}.Unary()))
	return func(ctx context.Context, _ fencing.Holder) error {
		err := conn.Invoke(ctx, "/test.Counter/Increment", &emptypb.Empty{}, &emptypb.Empty{})
		if err != nil && !errors.Is(err, fencing.ErrStale) {
			return fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
		}
		return err
	}, err
}

// nextCount returns the put that increments the counter, which is in the key of that name.
func nextCount(ctx context.Context, cli *clientv3.Client, name string, h fencing.Holder) (clientv3.Op, error) {
	resp, err := cli.Get(ctx, "counter/"+name)
	if err != nil {
		return clientv3.Op{}, fencing.NotDone(err)
	}
	r := stalewriter.Record{}
	if len(resp.Kvs) > 0 {
		if r, err = parseRecord(resp.Kvs[0].Value); err != nil {
			return clientv3.Op{}, err
		}
	}
	return clientv3.OpPut("counter/"+name, fmt.Sprint(r.Value+1, h.Token())), nil
}

func parseRecord(text []byte) (r stalewriter.Record, err error) {
	_, err = fmt.Sscan(string(text), &r.Value, (*int64)(&r.Token))
	return r, err
}

// counter is the effect behind HTTP and gRPC. Its mutex is not held from the read to the write:
// only the guard keeps another request out in between.
type counter struct {
	mu     sync.Mutex // protects value and writes
	value  int
	writes []stalewriter.Record
}

func (c *counter) increment(ctx context.Context) {
	claim, _ := fencing.ClaimFromContext(ctx)
	c.mu.Lock()
	seen := c.value
	c.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.value = seen + 1
	c.writes = append(c.writes, stalewriter.Record{Token: claim.Token, Value: c.value})
}

func (c *counter) read(*testing.T) (int, []stalewriter.Record) { return c.value, c.writes }

func (c *counter) serveHTTP(t *testing.T, name string) (url string) {
	target := func(*http.Request) (resource, lock string, err error) { return "counter", name, nil }
	effect := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { c.increment(r.Context()) })
	srv := httptest.NewServer(httpfence.Handler(effect, memfence.New(memfence.Options{}), target,
		httpfence.Options{Auditor: testkit.Unrecorded}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func (c *counter) serveGRPC(t *testing.T, name string) (addr string) {
	target := func(context.Context, string, any) (resource, lock string, err error) { return "counter", name, nil }
	guard := grpcfence.NewGuard(memfence.New(memfence.Options{}), target,
		grpcfence.Options{Auditor: testkit.Unrecorded})
	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(guard.Unary()))
	srv.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Counter", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "Increment",
			Handler: func(_ any, ctx context.Context, dec func(any) error, in grpc.UnaryServerInterceptor) (any, error) {
				req := new(emptypb.Empty)
				if err := dec(req); err != nil {
					return nil, err
				}
				return in(ctx, req, &grpc.UnaryServerInfo{FullMethod: "/test.Counter/Increment"},
					func(ctx context.Context, req any) (any, error) { c.increment(ctx); return req, nil })
			},
		}},
	}, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }() // joined by the cleanup
	t.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestStaleWriterOfAStoppedProcessIsRefused(t *testing.T) {
	srv := etcdtest.Start(t)
	way := func(how string) stalewriter.Way {
		j := stalewriter.Job{Endpoints: srv.Endpoints(), Name: "job " + how, Way: how}
		return stalewriter.Way{Name: how, A: j, B: j}
	}
	var ways []stalewriter.Way
	for _, how := range []string{byWriter, byMarks} {
		w := way(how)
		w.Read = func(t *testing.T) (counter int, writes []stalewriter.Record) {
			for _, ev := range srv.History(t, "counter/"+w.A.Name) {
				r, err := parseRecord(ev.Kv.Value)
				if err != nil {
					t.Fatal(err)
				}
				writes = append(writes, r)
				counter = r.Value
			}
			return counter, writes
		}
		ways = append(ways, w)
	}
	for how, serve := range map[string]func(c *counter, t *testing.T, name string) string{
		byHTTP: (*counter).serveHTTP, byGRPC: (*counter).serveGRPC,
	} {
		w, c := way(how), &counter{}
		w.A.Address = serve(c, t, w.A.Name)
		w.B.Address = w.A.Address
		w.Read = c.read
		ways = append(ways, w)
	}
	stalewriter.Run(t, ways...)
}
