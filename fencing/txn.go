package fencing

import (
	"context"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Txn begins a transaction, with the methods of clientv3's:
//
//	resp, err := w.Txn(ctx).If(cmps...).Then(ops...).Else(ops...).Commit()
//
// Else and Succeeded are about the caller's comparisons; a stale holder gets [ErrStale], and its Else
// does not run. Misuse does not panic as in clientv3: Commit returns a *holdfast.ArgumentError, with
// nothing sent, for a method called twice or in the wrong order, more than [MaxOps], an empty key, or
// a zero operation. See [FencedWriter] for other errors.
func (w *FencedWriter) Txn(ctx context.Context) clientv3.Txn {
	return &fencedTxn{w: w, ctx: ctx}
}

// stage is the last method that was called on a transaction.
type stage int

const (
	begun stage = iota
	hasIf
	hasThen
	hasElse
	committed
)

func (s stage) String() string {
	return [...]string{"Txn", "If", "Then", "Else", "Commit"}[s]
}

type fencedTxn struct {
	w   *FencedWriter
	ctx context.Context

	mu    sync.Mutex // protects the following fields; not held during the RPC
	stage stage
	cmps  []clientv3.Cmp
	then  []clientv3.Op
	els   []clientv3.Op

	// The first call out of order, and the stage it came after. Zero if there is none.
	misused, after stage
}

func (t *fencedTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.advance(hasIf) {
		// The caller may change cs and its elements after this. From client 3.7 on a
		// Cmp holds a pointer; OpTxn then copies what it points to.
		t.cmps, _, _ = clientv3.OpTxn(slices.Clone(cs), nil, nil).Txn()
	}
	return t
}

func (t *fencedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.advance(hasThen) {
		t.then = slices.Clone(ops)
	}
	return t
}

func (t *fencedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.advance(hasElse) {
		t.els = slices.Clone(ops)
	}
	return t
}

func (t *fencedTxn) Commit() (*clientv3.TxnResponse, error) {
	r := t.w.request("txn", "")
	op, err := t.finish(r.maxOps())
	if err != nil {
		return nil, r.refuse(err)
	}
	resp, err := r.send(t.ctx, op)
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

// advance records a method call and reports whether it is allowed now.
func (t *fencedTxn) advance(to stage) bool {
	if to <= t.stage {
		if t.misused == begun {
			t.misused, t.after = to, t.stage
		}
		return false
	}
	t.stage = to
	return true
}

// finish returns the transaction as one operation. It unlocks before it builds errors.
func (t *fencedTxn) finish(maxOps int) (clientv3.Op, error) {
	t.mu.Lock()
	t.advance(committed)
	misused, after := t.misused, t.after
	cmps, then, els := t.cmps, t.then, t.els
	t.mu.Unlock()
	if misused != begun {
		return clientv3.Op{}, invalid(misused.String(), "was called after %v", after)
	}
	if err := checkTxn(cmps, then, els, maxOps); err != nil {
		return clientv3.Op{}, err
	}
	return clientv3.OpTxn(cmps, then, els), nil
}

var errEmptyKey = invalid("key", "is empty")

// checkTxn refuses what etcd would refuse. Like etcd it counts the largest of the
// three lists per level, and gives nested transactions what is left.
func checkTxn(cmps []clientv3.Cmp, then, els []clientv3.Op, limit int) error {
	n := max(len(cmps), len(then), len(els))
	if n > limit {
		return invalid("ops", "has %d operations, at most %d are possible here", n, limit)
	}
	for i := range cmps {
		if len(cmps[i].KeyBytes()) == 0 {
			return errEmptyKey
		}
	}
	for _, ops := range [][]clientv3.Op{then, els} {
		for _, op := range ops {
			if err := checkOp(op, limit-n); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkOp(op clientv3.Op, limit int) error {
	switch {
	case op.IsTxn():
		cmps, then, els := op.Txn()
		return checkTxn(cmps, then, els, limit)
	case !op.IsPut() && !op.IsDelete() && !op.IsGet():
		return invalid("ops", "has an unknown operation type (use clientv3.Op*)") // clientv3 would panic
	case len(op.KeyBytes()) == 0:
		return errEmptyKey
	}
	return nil
}
