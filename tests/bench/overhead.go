package main

import (
	"context"

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
		what:       "Lock and Unlock, what the client itself adds: no network, no store",
		clientOnly: true,
		holdfast: func(e *env) (op, error) {
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
		},
		upstream: func(e *env) (op, error) {
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
		},
	}}
}

// instantClient returns a client with leases of etcdfake, whose key-value requests succeed without being sent.
func instantClient(srv *etcdfake.Server) *clientv3.Client {
	cli := srv.Link().Client()
	cli.KV = &instantKV{KV: cli.KV}
	return cli
}

// instantKV answers every Txn with success and empty reads.
type instantKV struct {
	clientv3.KV
	revision int64
}

func (kv *instantKV) Txn(context.Context) clientv3.Txn { return &instantTxn{kv: kv} }

func (kv *instantKV) Delete(context.Context, string, ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
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
