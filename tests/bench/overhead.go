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
// allocations are those of the library. The floor is the two Txns that a lock sends.
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
		floor: func(e *env) (op, error) {
			cli, err := e.client(0)
			return func(timer) error {
				return bareLock(e.ctx, cli, e.name, 1)
			}, err
		},
	}}
}

// bareLock sends the two Txns that Lock and Unlock of a free lock send.
func bareLock(ctx context.Context, cli *clientv3.Client, name string, lease clientv3.LeaseID) error {
	const id = "5eed5eed5eed5eed-ABCDEFGHIJKLMNOP"
	entries, epoch, gate := name+"/@/", name+"/epoch", name+"/session"
	key := entries + id
	resp, err := cli.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0), clientv3.Compare(clientv3.ModRevision(gate), "=", 0)).
		Then(clientv3.OpGet(entries, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend)),
			clientv3.OpGet(epoch), clientv3.OpPut(key, "{}", clientv3.WithLease(lease))).
		Commit()
	if err != nil {
		return err
	}
	_, err = cli.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", resp.Header.Revision)).
		Then(clientv3.OpDelete(key)).
		Commit()
	return err
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
