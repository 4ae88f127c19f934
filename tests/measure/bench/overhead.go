package main

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

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

// cold returns the operation that pair makes of a client whose requests succeed at once, after a Put to the store of e.
func cold(e *env, pair setup) (op, error) {
	store, err := e.client(0)
	if err != nil {
		return nil, err
	}
	cli := instantClient(etcdfake.New(etcdfake.Options{}))
	alone := newEnv(func() (*clientv3.Client, error) { return cli, nil }, e.name)
	e.closers = append(e.closers, func(context.Context) { alone.close() })
	call, err := pair(alone)
	if err != nil {
		return nil, err
	}
	var t timer
	cli.KV.(*instantKV).before = func() {
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

// instantClient returns a client with leases of etcdfake, whose key-value requests succeed without being sent.
func instantClient(srv *etcdfake.Server) *clientv3.Client {
	cli := srv.Link().Client()
	cli.KV = &instantKV{KV: cli.KV, before: func() {}}
	return cli
}

// instantKV answers every Txn with success and empty reads, after it has called before.
type instantKV struct {
	clientv3.KV
	before   func()
	revision int64
}

func (kv *instantKV) Txn(context.Context) clientv3.Txn { return &instantTxn{kv: kv} }

func (kv *instantKV) Delete(context.Context, string, ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	kv.before()
	kv.revision++
	return &clientv3.DeleteResponse{Header: &etcdserverpb.ResponseHeader{Revision: kv.revision}, Deleted: 1}, nil
}

type instantTxn struct {
	kv   *instantKV
	then []clientv3.Op
}

func (t *instantTxn) If(...clientv3.Cmp) clientv3.Txn { return t }

func (t *instantTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.then = ops
	return t
}

func (t *instantTxn) Else(...clientv3.Op) clientv3.Txn { return t }

func (t *instantTxn) Commit() (*clientv3.TxnResponse, error) {
	t.kv.before()
	t.kv.revision++
	resp := &clientv3.TxnResponse{
		Header: &etcdserverpb.ResponseHeader{Revision: t.kv.revision}, Succeeded: true,
		Responses: make([]*etcdserverpb.ResponseOp, len(t.then)),
	}
	for i := range t.then {
		resp.Responses[i] = emptyRange // callers read only the responses of Ranges
	}
	return resp, nil
}

var emptyRange = &etcdserverpb.ResponseOp{
	Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: &etcdserverpb.RangeResponse{}},
}
