package main

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
)

// overhead measures the client's own share of a lock. Requests succeed at once without being sent, so all time and
// allocations are those of the library.
func overhead() []subject {
	return []subject{{
		name:       "overhead",
		what:       "Lock and Unlock, the client's own work: no network, no store",
		clientOnly: true,
		holdfast:   holdfastPair,
		upstream:   upstreamPair,
	}, {
		name:     "overhead/cold",
		what:     "the same, each Txn after a Put that is not counted",
		calls:    100,
		holdfast: func(e *env) (op, error) { return cold(e, holdfastPair) },
		upstream: func(e *env) (op, error) { return cold(e, upstreamPair) },
	}, {
		name:       "overhead/between",
		what:       "of that, from the reply to Lock's request until Unlock's is sent; allocations of both",
		clientOnly: true,
		calls:      5000,
		holdfast:   func(e *env) (op, error) { return between(e, holdfastPair) },
		upstream:   func(e *env) (op, error) { return between(e, upstreamPair) },
	}}
}

func holdfastPair(e *env) (op, error) {
	sessions, err := e.holdfastSessions(1)
	if err != nil {
		return nil, err
	}
	mu := locker.NewMutex(sessions[0], e.name)
	return func(timer) error {
		lk, err := mu.Lock(e.ctx)
		if err != nil {
			return err
		}
		return lk.Unlock(e.ctx)
	}, nil
}

func upstreamPair(e *env) (op, error) {
	sessions, err := e.upstreamSessions(1)
	if err != nil {
		return nil, err
	}
	mu := concurrency.NewMutex(sessions[0], e.name)
	return func(timer) error {
		if err := mu.Lock(e.ctx); err != nil {
			return err
		}
		return mu.Unlock(e.ctx)
	}, nil
}

// between returns the operation that pair makes of a client whose requests succeed at once. The timer runs from the
// reply to the first request of each call until the client sends the next one.
func between(e *env, pair setup) (op, error) {
	cli, kv := instantClient(etcdfake.New(etcdfake.Options{}))
	alone := newEnv(func() (*clientv3.Client, error) { return cli, nil }, e.name)
	e.closers = append(e.closers, func(context.Context) { alone.close() })
	call, err := pair(alone)
	if err != nil {
		return nil, err
	}
	var t timer
	sent := 0
	kv.before = func() {
		if sent++; sent == 2 {
			t.StopTimer()
		}
	}
	kv.after = func() {
		if sent == 1 {
			t.StartTimer()
		}
	}
	return func(now timer) error {
		t, sent = now, 0
		t.StopTimer()
		err := call(t)
		if sent < 2 {
			err = errors.Join(err, errors.New("the client sent no second request"))
		}
		t.StartTimer() // a loop of package testing ends with a timer that runs
		return err
	}, nil
}

// cold returns the operation that pair makes of a client whose requests succeed at once, after a Put to the store of e.
func cold(e *env, pair setup) (op, error) {
	store, err := e.client(0)
	if err != nil {
		return nil, err
	}
	cli, kv := instantClient(etcdfake.New(etcdfake.Options{}))
	alone := newEnv(func() (*clientv3.Client, error) { return cli, nil }, e.name)
	e.closers = append(e.closers, func(context.Context) { alone.close() })
	call, err := pair(alone)
	if err != nil {
		return nil, err
	}
	var t timer
	kv.before = func() {
		t.StopTimer()
		_, failed := store.Put(e.ctx, e.name, "")
		err = errors.Join(err, failed)
		t.StartTimer()
	}
	return func(now timer) error {
		t = now
		return errors.Join(call(now), err)
	}, nil
}

// instantClient returns a client with leases of etcdfake, whose Txns succeed without being sent.
func instantClient(srv *etcdfake.Server) (*clientv3.Client, *instantKV) {
	link := srv.Link()
	cli, kv := link.Client(), &instantKV{KVClient: link.KVClient(), before: func() {}, after: func() {}}
	cli.KV = clientv3.NewKVFromKVClient(kv, cli)
	return cli, kv
}

// instantKV answers every Txn with success and empty reads. It calls before when it gets a request, and after when it
// replies.
type instantKV struct {
	etcdserverpb.KVClient

	before, after func()
	revision      int64
}

func (kv *instantKV) DeleteRange(
	context.Context, *etcdserverpb.DeleteRangeRequest, ...grpc.CallOption,
) (*etcdserverpb.DeleteRangeResponse, error) {
	kv.before()
	defer kv.after()
	kv.revision++
	return &etcdserverpb.DeleteRangeResponse{
		Header: &etcdserverpb.ResponseHeader{Revision: kv.revision}, Deleted: 1,
	}, nil
}

func (kv *instantKV) Txn(
	_ context.Context, r *etcdserverpb.TxnRequest, _ ...grpc.CallOption,
) (*etcdserverpb.TxnResponse, error) {
	kv.before()
	defer kv.after()
	kv.revision++
	resp := &etcdserverpb.TxnResponse{
		Header: &etcdserverpb.ResponseHeader{Revision: kv.revision}, Succeeded: true,
		Responses: make([]*etcdserverpb.ResponseOp, len(r.Success)),
	}
	for i := range resp.Responses {
		resp.Responses[i] = emptyRange // callers read only the responses of Ranges
	}
	return resp, nil
}

var emptyRange = &etcdserverpb.ResponseOp{
	Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: &etcdserverpb.RangeResponse{}},
}
