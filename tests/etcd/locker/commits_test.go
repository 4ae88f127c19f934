package locker_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// writes are the requests of some clients that change what is stored, each as often as it was sent. On a busy machine a
// client sends some twice, and puts its session key again because of that.
type writes struct {
	mu   sync.Mutex // protects what follows
	all  int
	txns map[string]bool // each once
}

func (w *writes) intercept(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	w.mu.Lock()
	switch r := req.(type) {
	case *pb.TxnRequest:
		if writing(r) {
			w.all++
			w.txns[r.String()] = true
		}
	case *pb.PutRequest, *pb.DeleteRangeRequest, *pb.LeaseGrantRequest, *pb.LeaseRevokeRequest:
		w.all++
	}
	w.mu.Unlock()
	return invoke(ctx, method, req, reply, cc, opts...)
}

// sent returns how many requests were sent, and how many different ones of them were Txns.
func (w *writes) sent() (all, txns int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all, len(w.txns)
}

func writing(t *pb.TxnRequest) bool {
	return slices.ContainsFunc(slices.Concat(t.Success, t.Failure), func(op *pb.RequestOp) bool {
		inner := op.GetRequestTxn()
		return op.GetRequestPut() != nil || op.GetRequestDeleteRange() != nil || inner != nil && writing(inner)
	})
}

// client returns a client whose requests go through a link and are counted.
func (w *writes) client(t *testing.T, link *etcdtest.Link) *clientv3.Client {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{
		Endpoints: link.Endpoints(), Logger: zap.NewNop(),
		DialOptions: append(link.DialOptions(), grpc.WithChainUnaryInterceptor(w.intercept)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// What etcd commits, it writes to its disk, and waits for that. A waiter only reads until it holds.
func TestHandOverCommitsAPutAndARemoval(t *testing.T) {
	t.Parallel()
	type acquire = func(ctx context.Context, s *session.Session) (release func(context.Context) error, err error)
	for name, acquire := range map[string]acquire{
		"Mutex": func(ctx context.Context, s *session.Session) (func(context.Context) error, error) {
			lk, err := locker.NewMutex(s, "x").Lock(ctx)
			if err != nil {
				return nil, err
			}
			return lk.Unlock, nil
		},
		"Set": func(ctx context.Context, s *session.Session) (func(context.Context) error, error) {
			lk, err := locker.NewSet(s, locker.Write("x"), locker.Write("y")).Lock(ctx)
			if err != nil {
				return nil, err
			}
			return lk.Unlock, nil
		},
		"election": func(ctx context.Context, s *session.Session) (func(context.Context) error, error) {
			term, err := election.New(s, "x").With(election.Options{Value: ""}).Campaign(ctx)
			if err != nil {
				return nil, err
			}
			return term.Resign, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, ctx := etcdtest.Start(t), deadline(t)
			waiterLink, w := srv.Link(t), &writes{txns: make(map[string]bool)}
			holder := open(t, w.client(t, srv.Link(t)), session.Options{})
			waiter := open(t, w.client(t, waiterLink), session.Options{})
			settled(t, waiterLink)
			release, err := acquire(ctx, holder)
			if err != nil {
				t.Fatal(err)
			}
			committed := func() uint64 {
				status, err := srv.Client(t).Status(ctx, srv.Endpoints()[0])
				if err != nil {
					t.Fatal(err)
				}
				return status.RaftIndex
			}
			before, sent := committed(), waiterLink.Count()["Txn"]
			allBefore, txnsBefore := w.sent()
			held := make(chan error)
			go func() { // received below
				_, err := acquire(ctx, waiter)
				held <- err
			}()
			if err := waiterLink.Wait(ctx, "Txn", sent+2); err != nil { // it has queued, and looks once its watch stands
				t.Fatal(err)
			}
			if err := release(ctx); err != nil {
				t.Error(err)
			}
			if err := <-held; err != nil {
				t.Error(err)
			}
			n := int(committed() - before)
			all, txns := w.sent()
			if txns -= txnsBefore; txns != 2 {
				t.Errorf("%d different Txns were to write, want the put and the removal", txns)
			}
			if all -= allBefore; n > all {
				t.Errorf("etcd has committed %d requests, of which %d were to write: it has taken a read for a write", n, all)
			}
		})
	}
}
