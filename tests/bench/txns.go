package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/locker"
)

// bareTxns measures the two Txns that Lock and Unlock of a free lock send, without holdfast: those of one Lock are
// recorded, and sent again and again.
func bareTxns(e *env) (op, error) {
	cli, err := e.client(0)
	if err != nil {
		return nil, err
	}
	kv := cli.KV
	recorder := &recordingKV{KV: kv}
	cli.KV = recorder
	sessions, err := e.holdfastSessions(1)
	if err != nil {
		return nil, err
	}
	recorder.take() // those of the session
	lk, err := locker.NewMutex(sessions[0], e.name).Lock(e.ctx)
	if err == nil {
		err = lk.Unlock(e.ctx)
	}
	if err != nil {
		return nil, err
	}
	txns := recorder.take()
	if len(txns) != 2 || len(txns[1].cmps) != 1 {
		return nil, fmt.Errorf("a free lock has sent %d Txns, or other ones than a put and a removal", len(txns))
	}
	put, remove := txns[0], txns[1]
	key := string(remove.cmps[0].KeyBytes())
	return func(timer) error {
		resp, err := kv.Txn(e.ctx).If(put.cmps...).Then(put.then...).Commit()
		if err != nil {
			return err
		}
		created := clientv3.Compare(clientv3.CreateRevision(key), "=", resp.Header.Revision)
		removed, err := kv.Txn(e.ctx).If(created).Then(remove.then...).Commit()
		if err == nil && !(resp.Succeeded && removed.Succeeded) {
			err = errors.New("etcd has refused the Txns of a free lock")
		}
		return err
	}, nil
}

// recordingKV records the Txns of a KV.
type recordingKV struct {
	clientv3.KV

	mu   sync.Mutex // protects txns
	txns []*recordedTxn
}

// take returns what was recorded since the last call.
func (kv *recordingKV) take() (all []*recordedTxn) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	all, kv.txns = kv.txns, nil
	return all
}

type recordedTxn struct {
	clientv3.Txn
	cmps []clientv3.Cmp
	then []clientv3.Op
}

func (kv *recordingKV) Txn(ctx context.Context) clientv3.Txn {
	t := &recordedTxn{Txn: kv.KV.Txn(ctx)}
	kv.mu.Lock()
	defer kv.mu.Unlock()
	kv.txns = append(kv.txns, t)
	return t
}

func (t *recordedTxn) If(cmps ...clientv3.Cmp) clientv3.Txn {
	t.cmps, t.Txn = cmps, t.Txn.If(cmps...)
	return t
}

func (t *recordedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.then, t.Txn = ops, t.Txn.Then(ops...)
	return t
}

func (t *recordedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Else(ops...)
	return t
}
