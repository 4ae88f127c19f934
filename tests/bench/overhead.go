package main

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
)

// overhead is what a lock costs in the client itself: requests are answered at
// once, by nobody, so that all time and every allocation are the library's, and
// those of the two Txns it sends, which are the floor.
func overhead() []subject {
	return []subject{{
		name:  "overhead",
		what:  "Lock and Unlock, what the client itself adds: no network, no store",
		alone: true,
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

// bareLock sends the two Txns that Lock and Unlock of a free lock are.
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

// aloneClient is a client whose leases are etcdfake's, and whose requests
// succeed without being sent.
func aloneClient(srv *etcdfake.Server) *clientv3.Client {
	cli := srv.Client()
	cli.KV = &yes{KV: cli.KV}
	return cli
}

// yes says yes to every Txn, and that nothing stands where it looks.
type yes struct {
	clientv3.KV
	revision int64
}

func (y *yes) Txn(context.Context) clientv3.Txn { return &yesTxn{yes: y} }

func (y *yes) Delete(context.Context, string, ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	y.revision++
	return &clientv3.DeleteResponse{Header: &etcdserverpb.ResponseHeader{Revision: y.revision}, Deleted: 1}, nil
}

type yesTxn struct {
	yes  *yes
	then []clientv3.Op
}

func (t *yesTxn) If(...clientv3.Cmp) clientv3.Txn { return t }

func (t *yesTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.then = ops
	return t
}

func (t *yesTxn) Else(...clientv3.Op) clientv3.Txn { return t }

func (t *yesTxn) Commit() (*clientv3.TxnResponse, error) {
	t.yes.revision++
	resp := &clientv3.TxnResponse{
		Header: &etcdserverpb.ResponseHeader{Revision: t.yes.revision}, Succeeded: true,
		Responses: make([]*etcdserverpb.ResponseOp, len(t.then)),
	}
	for i := range t.then {
		resp.Responses[i] = nothing // no Range asked for finds anything; of other answers nobody reads more
	}
	return resp, nil
}

var nothing = &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: &etcdserverpb.RangeResponse{}}}
