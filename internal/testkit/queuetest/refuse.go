package queuetest

import (
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// RefusingKV refuses requests as etcd does when its store is full or a role
// lacks a permission.
type RefusingKV struct {
	clientv3.KV

	mu    sync.Mutex // protects judge
	judge func(ops []clientv3.Op) error
}

// Refuse has judge decide which requests are refused; nil: none.
func (kv *RefusingKV) Refuse(judge func(ops []clientv3.Op) error) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	kv.judge = judge
}

func (kv *RefusingKV) verdict(ops ...clientv3.Op) error {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	if kv.judge == nil {
		return nil
	}
	var all []clientv3.Op // also those of the Txns in a batch
	for _, op := range ops {
		all = append(all, op)
		if op.IsTxn() {
			_, then, els := op.Txn()
			all = append(append(all, then...), els...)
		}
	}
	return kv.judge(all)
}

// Put implements clientv3.KV.
func (kv *RefusingKV) Put(
	ctx context.Context, key, value string, opts ...clientv3.OpOption,
) (*clientv3.PutResponse, error) {
	if err := kv.verdict(clientv3.OpPut(key, value, opts...)); err != nil {
		return nil, err
	}
	return kv.KV.Put(ctx, key, value, opts...)
}

// Txn implements clientv3.KV.
func (kv *RefusingKV) Txn(ctx context.Context) clientv3.Txn {
	return &refusingTxn{Txn: kv.KV.Txn(ctx), kv: kv}
}

type refusingTxn struct {
	clientv3.Txn
	kv  *RefusingKV
	ops []clientv3.Op
}

func (txn *refusingTxn) If(cmps ...clientv3.Cmp) clientv3.Txn {
	txn.Txn = txn.Txn.If(cmps...)
	return txn
}

func (txn *refusingTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	txn.Txn, txn.ops = txn.Txn.Then(ops...), append(txn.ops, ops...)
	return txn
}

func (txn *refusingTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	txn.Txn, txn.ops = txn.Txn.Else(ops...), append(txn.ops, ops...)
	return txn
}

func (txn *refusingTxn) Commit() (*clientv3.TxnResponse, error) {
	if err := txn.kv.verdict(flat(txn.ops)...); err != nil {
		return nil, err
	}
	return txn.Txn.Commit()
}

// flat returns the operations of a Txn and of the Txns in it.
func flat(ops []clientv3.Op) (all []clientv3.Op) {
	for _, op := range ops {
		if op.IsTxn() {
			_, then, els := op.Txn()
			all = append(append(all, flat(then)...), flat(els)...)
		} else {
			all = append(all, op)
		}
	}
	return all
}
