package etcdfence

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Txn begins a transaction, with the methods of clientv3's:
//
//	resp, err := w.Txn(ctx).If(cmps...).Then(ops...).Else(ops...).Commit()
//
// Else and Succeeded are about the caller's comparisons; a stale holder gets fencing.ErrStale, and its Else does not
// run. The methods may be called in any order, and add to each other. More than [MaxOps], and an operation or a
// comparison without a key, are a *holdfast.ArgumentError. A transaction is for one goroutine, and is committed once:
// each Commit sends it again. See [Writer] for errors.
func (w *Writer) Txn(ctx context.Context) clientv3.Txn {
	return &fencedTxn{w: w, ctx: ctx}
}

type fencedTxn struct {
	w    *Writer
	ctx  context.Context
	cmps []clientv3.Cmp
	then []clientv3.Op
	els  []clientv3.Op
}

func (t *fencedTxn) If(cmps ...clientv3.Cmp) clientv3.Txn {
	t.cmps = append(t.cmps, cmps...)
	return t
}

func (t *fencedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.then = append(t.then, ops...)
	return t
}

func (t *fencedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.els = append(t.els, ops...)
	return t
}

func (t *fencedTxn) Commit() (*clientv3.TxnResponse, error) {
	r := t.w.request("txn", "")
	resp, err := r.send(t.ctx, clientv3.OpTxn(t.cmps, t.then, t.els))
	if err != nil {
		return nil, err
	}
	inner := resp.Responses[0].GetResponseTxn()
	if inner == nil {
		return nil, r.malformed()
	}
	inner.Header = resp.Header // etcd fills in only the outermost header
	return (*clientv3.TxnResponse)(inner), nil
}
